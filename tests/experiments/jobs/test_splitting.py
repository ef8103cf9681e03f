"""A search that divides ops: the plan is chosen or given, the divided step is measured, the faster one handed back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from experiments.jobs import splitting
from experiments.jobs.search import run_search
from experiments.jobs.search_settings import SPLIT_AUTO, SearchSettings
from experiments.report.tables import finding_facts, summary_lines, write_results
from placer.errors import BadInputError
from placer.graph.mapping_files import MAPPING_FORMAT, SPLIT_FORMAT, read_mapping_file
from placer.result import Measured
from placer.splits.plan_files import plan_of, read_plan

SETTINGS = SearchSettings("two_tower", measurements=6, groups=24, split=SPLIT_AUTO)


@pytest.fixture(scope="module")
def found(two_cpus):
    """A search in which the best plan is tried, whatever it promises."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splitting, "WORTH", float("inf"))
        yield run_search(SETTINGS)


def rows(found, *, divided):
    return [row for row in found.measured if row.searcher.endswith("divided") == divided]


@pytest.mark.slow
def test_whole_and_divided_steps_are_measured_within_the_budget(found):
    if found.plan is None:
        assert any("stay whole" in line for line in found.ended)
        return
    assert rows(found, divided=True) and rows(found, divided=False)
    assert len(rows(found, divided=False)) <= SETTINGS.measurements


@pytest.mark.slow
def test_what_is_handed_back_is_no_slower_than_whole_ops(found):
    assert isinstance(found.best.result, Measured)
    assert found.best.result.step_s <= found.best_single.result.step_s
    if found.plan is not None:
        assert found.best.result.step_s <= found.whole.result.step_s


@pytest.fixture(scope="module")
def given(two_cpus, tmp_path_factory):
    """(mapping file with a plan, what a search by this plan found)."""
    from experiments import zoo
    from placer.splits.plan_files import regions_of
    from placer.splits.step_graph import StepGraph
    from placer.trace.capture import capture
    from search.splits.candidates import plan_by
    from search.splits.propagate import Rates

    training = zoo.load("two_tower", seed=0)
    captured = capture(training.step, training.example_inputs, training.name)
    graph = StepGraph(captured.graph_def)
    rates = Rates(dict.fromkeys(graph.nodes, 1e-3), 1e-12, 0.0)
    plan = plan_by("batch", graph, {op.name: op.phase for op in captured.graph.ops}, rates, 2)
    path = tmp_path_factory.mktemp("plan") / "mapping.json"
    splits = [{"way": r.way, "parts": r.parts, "ops": r.ops} for r in regions_of(plan)]
    path.write_text(json.dumps({"format": SPLIT_FORMAT, "assignment": {}, "splits": splits}))
    return path, plan, run_search(replace(SETTINGS, measurements=4, split=str(path)))


@pytest.mark.slow
def test_a_plan_that_was_given_is_the_one_that_is_measured(given, tmp_path):
    path, plan, found = given
    assert read_plan(path) == plan
    if found.plan is None:  # whole ops were faster
        assert any("dividing ops gave" in line for line in found.ended)
        return
    assert found.plan == plan
    write_results(found, tmp_path, tmp_path / "report.md", None)
    file = read_mapping_file(tmp_path / "mapping.json")
    assert file.format == SPLIT_FORMAT and plan_of(file) == plan
    assert any("/part_1" in name for name in file.assignment)
    assert finding_facts(found)["splits"][0]["parts"] == 2
    assert any("are divided" in line for line in summary_lines(found))


@pytest.mark.parametrize(
    ("splits", "said"),
    [
        (None, r"\$.splits is missing"),
        ([{"way": "batch", "parts": 2, "ops": ["no_such_op"]}], "no_such_op.*another graph"),
        ([{"way": "sideways", "parts": 2, "ops": ["MatMul"]}], "no_such_op|sideways|another graph"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_in_one_line(two_cpus, tmp_path, splits, said):
    path = tmp_path / "mapping.json"
    format = MAPPING_FORMAT if splits is None else SPLIT_FORMAT
    path.write_text(json.dumps({"format": format, "assignment": {}} | ({} if splits is None else {"splits": splits})))
    with pytest.raises(BadInputError, match=said) as error:
        run_search(replace(SETTINGS, model="mnist_softmax", split=str(path)))
    assert "\n" not in str(error.value)
