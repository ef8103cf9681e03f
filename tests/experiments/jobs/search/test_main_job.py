"""The main job on two in-process devices: a real network searched, measured, checked and handed back."""

from __future__ import annotations

import json
import os
import re
import signal
from dataclasses import replace
from types import SimpleNamespace

import pytest
import tensorflow as tf

from experiments.jobs.interrupt import EndedError
from experiments.jobs.search import ending, job
from experiments.jobs.search.finding import Progress
from experiments.jobs.search.main_job import run_search
from experiments.jobs.search.settings import SearchSettings
from experiments.report.result_files import check_writable, write_results
from experiments.report.search_tables import finding_facts, summary_lines
from placer.errors import BadInputError, PlacerError
from placer.graph.graph_files import read_graph, read_topology
from placer.graph.mapping_files import read_mapping
from placer.measure.settings import LEAST_TURNS
from placer.measure.store import Store
from placer.result import Measured
from search.problem.problem import Problem

SETTINGS = SearchSettings("mnist_softmax", measurements=7, groups=24)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with Store(tmp_path_factory.mktemp("store") / "runs.sqlite") as store:
        yield store


@pytest.fixture(scope="module")
def found(two_cpus, store):
    return run_search(SETTINGS, store=store, trace=True)


def test_single_devices_are_measured_first_and_nothing_twice(found):
    assert [row.searcher for row in found.measured[:2]] == ["single", "single"]
    asked = [row.mapping.devices for row in found.measured]
    assert len(asked) == len(set(asked))
    assert len(asked) <= SETTINGS.measurements


@pytest.mark.slow
def test_a_suspend_during_a_search_is_said_once_and_stands_in_the_report(two_cpus, monkeypatch):
    said, looks = [], iter([0.0, 7200.0])
    monkeypatch.setattr(job, "Suspends", lambda: SimpleNamespace(passed_s=lambda: next(looks, 0.0)))
    progress = Progress()
    progress.phase = said.append
    found = run_search(replace(SETTINGS, measurements=2), progress)
    line = "this machine was suspended for 2.0 h; the step that it fell into is not counted."
    assert said.count(line) == 1
    assert finding_facts(found)["notes"].count(f"T{line[1:]}") == 1


@pytest.mark.slow
def test_a_store_that_can_be_written_no_more_ends_no_search(two_cpus, tmp_path, monkeypatch):
    """The disk is full after the first result."""
    with Store(tmp_path / "runs.sqlite") as store:
        add, kept = store.add, []

        def added(*arguments):
            kept.append(arguments)
            if len(kept) > 1:
                raise PlacerError("the store runs.sqlite cannot be written: database or disk is full; free some space.")
            add(*arguments)

        monkeypatch.setattr(store, "add", added)
        found = run_search(replace(SETTINGS, measurements=3), store=store)
        assert (len(found.measured) >= 2, len(store), len(kept)) == (True, 1, 2)
    assert isinstance(found.best.result, Measured)
    assert found.unkept.startswith("the store runs.sqlite cannot be written")


def test_what_is_handed_back_is_never_slower_than_the_best_single_device(found):
    assert isinstance(found.best.result, Measured)
    assert found.best.result.step_s <= found.best_single.result.step_s
    assert found.best_single.mapping.is_single


@pytest.mark.slow
def test_a_finalist_that_dropped_out_is_not_handed_back_for_its_first_turns(two_cpus, monkeypatch):
    """The machine was faster in these turns, which says nothing beside the others' medians of all."""
    whole = ending.stepped

    def slowed(job, steps, *arguments, **named):
        results, untouched = whole(job, steps, *arguments, **named)
        last = replace(results[-1], step_s=1e-9, repeats=10, stopped_early=True)
        return [*(replace(result, stopped_early=False) for result in results[:-1]), last], untouched

    monkeypatch.setattr(ending, "stepped", slowed)
    found = run_search(SETTINGS)
    assert len(found.finalists) > 1 and min(row.result.step_s for row in found.finalists) == 1e-9
    assert found.best.result.step_s > 1e-9 and not found.best.result.stopped_early


def test_local_devices_are_compared_with_tensorflows_default(found):
    assert found.tf_default_s > 0
    assert any("TensorFlow's own placement" in line for line in summary_lines(found))


def test_every_row_says_how_it_was_measured(found):
    for row in finding_facts(found)["measured"]:
        assert row["failed"] is None
        assert row["repeats"] > 0
        assert row["ratio_to_best_single"] > 0
        assert row["predicted_s"] > 0 and row["replayed_s"] > 0
        assert row["groups_per_device"] == row["ops_per_device"]  # the former name
        assert sum(row["groups_per_device"].values()) == len(found.groups.graph)


def test_files_go_back_into_the_tools(found, tmp_path):
    write_results(found, tmp_path, tmp_path / "report.md", tmp_path / "trace.json")
    graph, topology = read_graph(tmp_path / "graph.json"), read_topology(tmp_path / "topology.json")
    groups = read_mapping(tmp_path / "groups.json", graph, topology)
    assert groups.devices == found.best.mapping.devices
    ops = json.loads((tmp_path / "mapping.json").read_text())
    assert ops["assignment"] == found.mapping.assignment
    assert ops["measured_s"] == found.best.result.step_s
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert {e["ph"] for e in trace["traceEvents"]} >= {"M", "X"}
    assert "best single device" in (tmp_path / "report.md").read_text()


def test_a_file_that_cannot_be_written_loses_none_of_the_others(found, tmp_path, capsys):
    os.mkfifo(tmp_path / "groups.json")  # and nobody reads it
    (tmp_path / "report.html").mkdir()
    with pytest.raises(PlacerError, match=r"report\.html: is a folder"):
        write_results(found, tmp_path, tmp_path / "report.html", tmp_path / "trace.json", tmp_path / "step.png")
    wrote, groups = capsys.readouterr().err.splitlines()
    assert "mapping.json" in wrote
    assert groups.startswith("placer: ") and "groups.json: nobody reads from it" in groups
    graph, topology = read_graph(tmp_path / "graph.json"), read_topology(tmp_path / "topology.json")
    assert json.loads((tmp_path / "mapping.json").read_text())["assignment"] == found.mapping.assignment
    assert len(graph) == len(found.groups.graph) and len(topology) == 2
    assert "traceEvents" in json.loads((tmp_path / "trace.json").read_text())
    assert (tmp_path / "step.png").read_bytes().startswith(b"\x89PNG")


def test_files_that_cannot_be_written_are_refused_before_the_search(tmp_path):
    (tmp_path / "groups.json").mkdir()
    for options in ((tmp_path, None, None), (None, tmp_path, None), (None, None, tmp_path / "groups.json")):
        with pytest.raises(PlacerError, match="is a folder"):
            check_writable(*options)
    check_writable(tmp_path / "new", tmp_path / "reports" / "report.md", None)
    assert (tmp_path / "new").is_dir() and not list((tmp_path / "reports").iterdir())


def test_the_page_shows_what_was_measured(found, tmp_path):
    write_results(found, None, tmp_path / "report.html", None)
    text = (tmp_path / "report.html").read_text()
    page = json.loads(re.search(r'id="record">(.*?)</script>', text)[1])
    assert page["rows"]["step_s"] == [row.result.step_s for row in found.measured]
    assert page["rows"]["predicted_s"] == [row.predicted_s for row in found.measured]
    assert sorted(page["rows"]["at_s"]) == page["rows"]["at_s"] and page["rows"]["at_s"][-1] <= found.seconds
    delivered, *others = page["baselines"]["step_s"]
    assert delivered == found.best.result.step_s
    assert others == [found.best_single.result.step_s, found.tf_default_s, found.untouched.step_s]
    assert page["nodes"]["device"] == list(found.best.mapping.devices)
    assert page["loads"]["busy_s"] == list(found.after.busy_s)
    steps = (found.before, found.after, found.trace[1])
    assert page["panels"]["makespan_s"] == [timeline.makespan_s for timeline in steps]


@pytest.mark.slow
def test_a_stored_mapping_is_not_measured_again(found, store):
    before = len(store)
    assert before == len(found.measured)
    again = run_search(SETTINGS, store=store)
    singles = [row for row in again.measured if row.searcher == "single"]
    assert [row.stored for row in singles] == [False, True]  # the anchor is measured in every session
    assert len(store) == before + len([row for row in again.measured[1:] if not row.stored])


@pytest.mark.slow
def test_when_the_minutes_are_over_little_more_is_measured(two_cpus):
    """A single device, to have something to compare with, and the fewest turns side by side."""
    found = run_search(replace(SETTINGS, minutes=1e-6))
    assert [row.searcher for row in found.measured] == ["single"]
    assert found.best.result.repeats == found.tf_default.repeats == LEAST_TURNS
    assert any("cpu:1 not tried, because the minutes were up" in line for line in found.ended)


@pytest.fixture(scope="module")
def apart(two_cpus):
    """A search under pins that no single device can keep."""
    return run_search(replace(SETTINGS, measurements=3, pins=(".*/MatMul=cpu:0", ".*BiasAdd.*=cpu:1")))


@pytest.mark.slow
def test_pins_are_kept_by_all_that_is_measured_and_by_what_is_handed_back(apart):
    groups_of = {op: g for g, members in enumerate(apart.groups.members) for op in members}
    for row in apart.measured:
        for v, op in enumerate(apart.groups.fine.ops):
            device = apart.topology.names[row.mapping.devices[groups_of[v]]]
            assert not op.name.endswith("/MatMul") or device == "cpu:0"
            assert "BiasAdd" not in op.name or device == "cpu:1"
    for name, device in apart.mapping.assignment.items():
        assert not name.endswith("/MatMul") or device == "cpu:0"
        assert "BiasAdd" not in name or device == "cpu:1"


@pytest.mark.slow
def test_where_no_single_device_is_possible_this_is_said(apart, tmp_path):
    assert apart.best_single is None and not apart.default_wins
    assert isinstance(apart.best.result, Measured) and apart.best.ratio is None
    assert finding_facts(apart)["best_single"] is None
    said = " ".join(summary_lines(apart))
    assert "No single device can run it under these constraints" in said and "which ignores pins" in said
    write_results(apart, tmp_path, tmp_path / "report.md", None)
    assert json.loads((tmp_path / "mapping.json").read_text())["baseline"]["best_single"] is None
    assert "No single device" in (tmp_path / "report.md").read_text()
    graph, topology = read_graph(tmp_path / "graph.json"), read_topology(tmp_path / "topology.json")
    assert not list(Problem(graph, topology).singles())  # the files keep the pins


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"pins": ("dense",)}, "give PATTERN=DEVICE"),
        ({"pins": ("no_such_op=cpu:0",)}, "matches as a whole"),
        ({"model": "no_such_net"}, "no_such_net"),
        ({"searchers": ("oracle",)}, "no searcher 'oracle'"),
        ({"measurements": 0}, "--measurements is 0"),
        ({"groups": 1}, "--groups is 1"),
        ({"minutes": -1.0}, "--minutes is -1"),
        ({"devices": "workers:many"}, "no number of workers"),
        ({"devices": "somewhere"}, "unknown"),
    ],
)
def test_bad_settings_are_refused_in_one_line(two_cpus, change, says):
    with pytest.raises(BadInputError, match=says) as refused:
        run_search(replace(SETTINGS, **change))
    assert "\n" not in str(refused.value)


def test_a_pin_that_matches_no_op_is_refused_before_the_step_is_timed(two_cpus, monkeypatch):
    monkeypatch.setattr("placer.measure.untouched.measure_untouched", None)
    with pytest.raises(BadInputError, match="matches as a whole"):
        run_search(replace(SETTINGS, pins=("no_such_op=cpu:0",)))


class At(Progress):
    """Sends a signal when a phase begins, or once so many mappings were measured."""

    def __init__(self, *moments, number=signal.SIGINT):
        self.moments, self.number, self.rows = list(moments), number, 0

    def phase(self, text):
        self._reached(text)

    def trial(self, trial, best):
        self.rows += 1
        self._reached(self.rows)

    def _reached(self, moment):
        if moment in self.moments:
            self.moments.remove(moment)
            signal.raise_signal(self.number)


FINALISTS = "measuring the finalists side by side"
interrupts = pytest.mark.usefixtures("ctrl_c_interrupts")


@pytest.mark.slow
@interrupts
def test_ctrl_c_hands_back_the_best_so_far(two_cpus):
    found = run_search(replace(SETTINGS, measurements=40), At(4))
    assert found.interrupted and not found.raced
    assert 4 <= len(found.measured) <= 8  # the race under way is finished
    assert found.best.result.step_s <= found.best_single.result.step_s
    assert any("interrupted after" in line for line in summary_lines(found))


def test_a_run_order_is_that_of_the_measurement_whatever_is_learnt_later():
    search, mapping, other = object.__new__(job.Job), SimpleNamespace(devices=(0, 1)), SimpleNamespace(devices=(1, 0))
    search._orders, search.prediction = {}, SimpleNamespace(order=lambda _: ("a", "b"))
    assert search.order(mapping) == ("a", "b")
    search.prediction = SimpleNamespace(order=lambda _: ("b", "a"))  # calibrated
    assert search.measured_order(mapping) == ("a", "b") and search.measured_order(other) == ("b", "a")
    assert search.order(mapping) == search.measured_order(mapping) == ("b", "a")  # measured once more


@pytest.mark.slow
@interrupts
def test_ctrl_c_after_the_first_single_device_hands_that_back(two_cpus):
    found = run_search(SETTINGS, At(1))
    assert found.interrupted and len(found.measured) == 1
    assert found.best.mapping.is_single and found.best.result.repeats > 0


@pytest.mark.some(1)
@interrupts
@pytest.mark.parametrize(("moment", "number"), [(FINALISTS, signal.SIGINT), (5, signal.SIGTERM), (2, signal.SIGHUP)])
def test_what_is_cut_short_hands_back_the_best_of_the_races(two_cpus, tmp_path, moment, number):
    with Store(tmp_path / "store.sqlite") as store:
        found = run_search(SETTINGS, At(moment, number=number), store)
        kept = len(store)
    assert found.interrupted and found.raced and not found.lost
    assert 2 <= len(found.measured) <= kept + 1  # the row under way may be in the store alone
    assert found.best.result.step_s <= found.best_single.result.step_s
    lines = summary_lines(found)
    assert any("before the fastest were measured side by side" in line for line in lines)
    assert not any(line.startswith("Side by side") for line in lines)
    write_results(found, tmp_path, tmp_path / "report.html", None)
    assert read_mapping(tmp_path / "mapping.json", found.groups.fine, found.topology).devices == found.mapping.devices
    assert "in a race" in (tmp_path / "report.html").read_text()
    assert finding_facts(found)["interrupted"]


@pytest.mark.slow
@interrupts
def test_a_signal_while_the_step_is_traced_keeps_what_was_measured_side_by_side(two_cpus, monkeypatch):
    def traced(*_):
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(ending, "_trace", traced)
    found = run_search(replace(SETTINGS, measurements=3), trace=True)
    assert found.interrupted and not found.raced and found.trace is None
    assert len(found.finalists) > 1
    assert "interrupted before the step was traced." in found.ended


@pytest.mark.some(1)
@interrupts
@pytest.mark.parametrize("phase", ["tracing mnist_softmax", "profiling ops on each device"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_before_a_mapping_ran_one_line_says_that_there_is_none(two_cpus, phase, number):
    with pytest.raises(EndedError, match="before a mapping had run, so nothing is handed back"):
        run_search(SETTINGS, At(phase, number=number))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.slow
@interrupts
def test_a_second_ctrl_c_ends_at_once(two_cpus):
    with pytest.raises(KeyboardInterrupt):
        run_search(SETTINGS, At(3, FINALISTS))


DIVERGING = """
import tensorflow as tf

def made():
    weights = [tf.Variable(tf.ones([8, 8])) for _ in range(2)]

    def step(x):
        with tf.GradientTape() as tape:
            loss = sum(tf.reduce_sum(tf.square(x @ weight)) for weight in weights)
        for weight, gradient in zip(weights, tape.gradient(loss, weights)):
            weight.assign_sub(1e20 * gradient)
        return loss

    return step, (tf.ones([4, 8]),)
"""


@pytest.mark.slow
def test_a_loss_that_is_not_finite_is_told(two_cpus, tmp_path):
    (tmp_path / "diverging.py").write_text(DIVERGING)
    found = run_search(SearchSettings(f"{tmp_path / 'diverging.py'}:made", measurements=3))
    (line,) = [line for line in summary_lines(found) if "times are right, the training is not" in line]
    assert line.startswith("The loss is infinite after 2 steps; ")


@pytest.mark.slow
@interrupts
def test_an_error_of_tensorflows_at_the_end_leaves_what_the_races_showed(two_cpus, monkeypatch):
    def fails(*_, **__):
        raise tf.errors.UnavailableError(None, None, "Socket closed\nand more")

    monkeypatch.setattr(ending, "stepped", fails)
    found = run_search(replace(SETTINGS, measurements=3))
    assert found.raced and found.lost == "TensorFlow failed: Socket closed" and not found.interrupted


@pytest.mark.slow
def test_a_search_with_nothing_left_to_ask_ends_and_says_so(two_cpus):
    found = run_search(replace(SETTINGS, measurements=9, searchers=("single",)))
    assert len(found.measured) == 2
    assert any("nothing left to ask" in line for line in summary_lines(found))
