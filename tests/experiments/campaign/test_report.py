"""The report of a campaign: its record, its page, its picture, and what it says where files are gone."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from experiments.campaign.cells import MEASURED
from experiments.campaign.measured.profiled import StoredProfile
from experiments.campaign.rows import lead
from experiments.campaign.run import Campaign, wanted
from experiments.campaign.spec import read_spec
from experiments.campaign.standing import after, best_single_s, standing
from experiments.campaign.store import PROFILE, CampaignStore, Held, StoredTrial, WantedCell
from experiments.report.campaign.curves import Course, curves_of
from experiments.report.campaign.markdown import report_markdown
from experiments.report.campaign.page_record import campaign_record
from experiments.report.campaign.report import check_report, report_content
from placer.errors import BadInputError
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from placer.result import Failed, Measured
from search.initial.baselines import Random
from tests.experiments.campaign.conftest import towers


@pytest.fixture
def record(done):
    """Its record, by the spec that is there when it is called."""

    def make():
        spec = read_spec(done / "campaign.toml", lenient=True)
        with CampaignStore(spec.store, reads=True) as store:
            return campaign_record(store, {cell.case.key: cell.case for cell in spec.cells})

    return make


def held(searcher, seed, results, seconds=1.0, wanted=4):
    trials = tuple(StoredTrial(n, (0,), result, seconds) for n, result in enumerate(results))
    return Held(f"{searcher} {seed}", "case", "measured", searcher, seed, wanted, None, None, None, None, trials)


def ran(*seconds):
    return [Failed("error", "no") if step_s is None else Measured(step_s) for step_s in seconds]


def test_curves_are_the_median_and_range_of_the_best_so_far():
    courses = [
        Course.of(held("a", 0, ran(5.0, None, 3.0, 4.0)), 6.0, True),
        Course.of(held("a", 1, ran(7.0, 2.0), seconds=2.0), 6.0, False),  # not so far yet
        Course.of(held("a", 2, ran(4.0, 4.0, 4.0, 1.0)), 6.0, True),
    ]
    order, seconds = curves_of(courses)
    assert (order.axis, order.seeds, order.at) == ("order", 3, (0, 1, 2, 3, 4))
    assert order.median_s == (6.0, 5.0, 4.0, 3.5, 2.0)
    assert (order.low_s, order.high_s) == ((6.0, 4.0, 2.0, 3.0, 1.0), (6.0, 6.0, 5.0, 4.0, 3.0))
    assert (seconds.axis, seconds.at) == ("seconds", (1.0, 2.0, 3.0, 4.0))
    assert seconds.low_s == (4.0, 4.0, 3.0, 1.0)


def test_a_curve_counts_no_refusal_as_a_measurement_but_its_seconds_as_spent():
    cell = held("a", 0, ran(5.0, None, None, 3.0))
    cell = replace(cell, trials=tuple(replace(trial, refused=0 < trial.n < 3) for trial in cell.trials))
    course = Course.of(cell, 6.0, True)
    assert (course.measurements, course.best_s, course.seconds) == (2, (6.0, 5.0, 3.0), (0.0, 1.0, 4.0))


def test_curves_agree_with_what_the_tables_say(done):
    with CampaignStore(done / "campaign.sqlite", reads=True) as store:
        single_s = best_single_s(store.opened("towers.json on two.json"))
        curves = curves_of([Course.of(cell, single_s, True) for cell in store.held()])
        for row in after(store, (2, 5)):
            curve = next(c for c in curves if (c.searcher, c.axis) == (row["searcher"], "order"))
            for count in (2, 5):
                low_s, high_s = (ends[curve.at.index(count)] for ends in (curve.low_s, curve.high_s))
                middle = (single_s / low_s + single_s / high_s) / 2  # of two seeds
                assert row["after"][str(count)] == pytest.approx(middle)


def test_long_curves_are_thinned_out_and_keep_round_counts_and_the_end():
    course = Course.of(held("a", 0, ran(*(10_000.0 - i for i in range(9_999)))), 10_000.0, True)
    order, seconds = curves_of([course])
    assert {1, 50, 100, 200, 5000, 9_999} <= set(order.at) and len(order.at) < 200
    assert len(seconds.at) < 200 and seconds.at[-1] == 9_999.0


def test_a_search_in_which_nothing_ran_has_no_curve():
    assert curves_of([Course.of(held("a", 0, ran(None)), float("inf"), False)]) == ()


def test_the_record_has_the_figures_of_the_best_mapping(record, done):
    found = record()
    (case,) = found.cases
    with CampaignStore(done / "campaign.sqlite", reads=True) as store:
        facts = standing(store)
    best_s = min(row["best_s"] for row in facts["cells"])
    before, best = case.panels
    assert best.makespan_s == pytest.approx(best_s) and before.makespan_s == facts["cells"][0]["best_single_s"]
    assert {node.device for node in case.nodes} == {0, 1} and len(case.loads) == 2
    assert case.missing == () and case.rows == ()
    assert [cell.best_s for cell in found.cells] == [row["best_s"] for row in facts["cells"]]
    assert any("by prediction only" in line for line in case.summary)
    assert any("no gain is one before it is measured" in line for line in found.summary)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: path.unlink(), "cannot be read any more"),
        (lambda path: path.write_text(path.read_text().replace("1.1", "1.2")), "has changed since"),
    ],
)
def test_a_file_that_is_gone_or_changed_is_said_in_the_page(record, done, spoil, said):
    spoil(done / "towers.json")
    (case,) = record().cases
    assert case.panels == case.nodes == case.loads == () and case.curves != ()
    assert len(case.missing) == 1 and said in case.missing[0] and "towers.json" in case.missing[0]


def test_a_store_alone_makes_a_page_without_the_best_mapping(done):
    with CampaignStore(done / "campaign.sqlite", reads=True) as store:
        (case,) = campaign_record(store, {}).cases
        page = report_content(store, None, "html").decode()
    assert "spec" in case.missing[0] and case.nodes == ()
    assert "No timelines, no graph and no loads of the best mapping" in page


def test_what_searchers_noted_is_in_every_report(folder, monkeypatch):
    def noting(searcher):
        if not searcher.notes:
            searcher.notes.append("stage 2 after 2 mappings: the fitness is ridge.")
        return propose(searcher)

    propose = Random._propose
    monkeypatch.setattr(Random, "_propose", noting)
    spec = read_spec(folder / "campaign.toml")
    with CampaignStore(spec.store) as store:
        Campaign(spec, store).run()
        facts = standing(store)
        (case,) = campaign_record(store, {}).cases
        text = report_markdown(facts, [])
    assert {row["searcher"]: len(row["notes"]) for row in facts["cells"]} == {"random": 1, "local": 0}
    lines = [f"random, seed {seed}: stage 2 after 2 mappings: the fitness is ridge." for seed in (0, 1)]
    assert set(lines) <= set(case.summary) and set(lines) <= set(text.splitlines())


def test_failures_are_told_with_their_cell(folder):
    spec = read_spec(folder / "campaign.toml")
    with CampaignStore(spec.store) as store:
        store.want(wanted(spec))
        store.keep_failure(spec.cells[0].case.key, spec.cells[0].key, 3, Failed("memory", "no room"))
        store.keep(spec.cells[1].key, StoredTrial(0, (0, 0), Failed("link", "missing"), 0.1), {})
        found = campaign_record(store, {})
    assert [(failure.reason, failure.detail) for failure in found.failures] == [
        ("memory", "no room"),
        ("link", "missing"),
    ]
    assert found.failures[0].where.endswith("mapping 4") and found.failures[0].at


def test_a_picture_has_a_line_for_each_searcher(done):
    with CampaignStore(done / "campaign.sqlite", reads=True) as store:
        svg = report_content(store, None, "svg")
        png = report_content(store, None, "png")
    assert png.startswith(b"\x89PNG")
    assert ET.fromstring(svg).tag.endswith("svg")


@pytest.mark.parametrize(
    ("out", "format", "meant"),
    [
        (None, None, "md"),
        (None, "html", "html"),
        ("a.HTM", None, "html"),
        ("a.png", None, "png"),
        ("a.txt", "md", "md"),
    ],
)
def test_the_format_is_as_the_file_is_called_or_as_asked_for(tmp_path, out, format, meant):
    assert check_report(out and tmp_path / out, format) == meant


@pytest.mark.parametrize(("out", "format"), [("a.txt", None), ("a.html", "pdf")])
def test_an_unknown_format_is_refused(tmp_path, out, format):
    with pytest.raises(BadInputError) as refused:
        check_report(tmp_path / out, format)
    assert "\n" not in str(refused.value) and "html" in str(refused.value)


@pytest.fixture
def measured(tmp_path):
    """A store with one measured cell of a graph of eight ops in two groups: three mappings, and what they came to."""
    fine = towers(1e-3)
    members = ((0, 1, 2, 3, 7), (4, 5, 6))
    cost_s = [{"cpu": sum(fine.ops[i].cost_s["cpu"] for i in group)} for group in members]
    ops = tuple(Op(name, cost_s=cost) for name, cost in zip(("left", "right"), cost_s, strict=True))
    topology = Topology((Device("worker:0", "cpu"), Device("worker:1", "cpu")), (Link("*", "*", 1e-6, 1e9),))
    profiled = StoredProfile(fine, OpGraph("towers", ops, (Edge(0, 1, 8),)), members, topology, 0.0, "here")
    ran = [Measured(0.9, 0.01, 8), Measured(0.8, 0.01, 8), Failed("memory", "no room")]
    with CampaignStore(tmp_path / "m.sqlite") as store:
        store.want([WantedCell("m: a, seed 0", "m", MEASURED, {}, "a", 0, 3, None)])
        store.keep_opened(
            "m", {"singles": [["worker:0", 1.0], ["worker:1", None]], "bound_s": 0.1}, {PROFILE: profiled.encoded()}
        )
        for n, (placement, result) in enumerate(zip(((1, 1), (0, 1), (1, 0)), ran, strict=True)):
            store.keep("m: a, seed 0", StoredTrial(n, placement, result, 1.0), {})
        final = {"n": 3, "best_s": 0.75, "best_single_s": 1.5, "untouched_s": 1.2, "devices": [0, 1]}
        store.keep_final("m: a, seed 0", {**final, "spread_s": 0.1, "repeats": 9})
    with CampaignStore(tmp_path / "m.sqlite", reads=True) as store:
        yield store


def test_a_measured_case_is_drawn_by_its_stored_profile(measured):
    (case,) = campaign_record(measured, {}).cases
    assert case.missing == ()
    assert {node.name: node.device for node in case.nodes} == {"left": 0, "right": 1}
    assert [node.op_count for node in case.nodes] == [5, 3]
    assert [baseline.step_s for baseline in case.baselines] == [0.75, 1.5, 1.2, 0.1]
    assert any("side by side" in line and "2.00x" in line for line in case.summary)


def test_predictions_stand_beside_what_was_measured(measured):
    (case,) = campaign_record(measured, {}).cases
    problem = StoredProfile.decoded(measured.content("m", PROFILE)).prediction.problem
    assert [(row.step_s, row.predicted_s) for row in case.rows] == [
        (0.9, pytest.approx(problem.predict((1, 1)))), (0.8, pytest.approx(problem.predict((0, 1)))),
    ]  # fmt: skip
    assert "Predicted against measured" in report_content(measured, None, "html").decode()


LUCKY = WantedCell("m: b, seed 0", "m", MEASURED, {}, "b", 0, 4, None)


@pytest.fixture
def raced(measured, tmp_path):
    """The same beside a cell of the same case that still races, 2.5 times as fast as the single device by luck."""
    with CampaignStore(tmp_path / "m.sqlite") as store:
        cells = [WantedCell("m: a, seed 0", "m", MEASURED, {}, "a", 0, 3, None), LUCKY]
        store.want(cells)
        store.keep(LUCKY.key, StoredTrial(0, (0, 1), Measured(0.4, 0.2, 3), 1.0), {})
    return measured


def gains(store):
    return next(line for line in campaign_record(store, {}).summary if "the best mappings are" in line)


def test_the_gains_of_a_campaign_are_those_that_were_measured_side_by_side(raced):
    assert gains(raced) == "Measured: the best mappings are 2.00x the best single device, in one case."
    page = report_content(raced, None, "html").decode()
    assert re.search(r"The best of each case, with a ~ [^:]+: m 2\.00\.", page)


def test_a_gain_of_a_race_is_marked_as_one(tmp_path):
    with CampaignStore(tmp_path / "r.sqlite") as store:
        store.want([LUCKY])
        store.keep_opened("m", {"singles": [["worker:0", 1.0]], "bound_s": 0.1}, {})
        store.keep(LUCKY.key, StoredTrial(0, (0, 1), Measured(0.4, 0.2, 3), 1.0), {})
        said = "Measured, but only in races yet: the best mappings are ~2.50x the best single device, in one case."
        assert gains(store) == said
        page = report_content(store, None, "html").decode()
        assert "~2.50x the best single device." in page and re.search(r"The best of each case, [^:]+: m ~2\.50\.", page)


def test_how_far_searchers_had_come_is_by_what_was_measured_at_their_end(raced):
    ended, racing = after(raced, (1, 3))
    assert (ended["after"], ended["side_by_side"]) == ({"1": 1 / 0.9, "3": 2.0}, {"1": False, "3": True})
    assert (racing["after"], racing["side_by_side"]) == ({"1": 2.5, "3": None}, {"1": False, "3": False})
    text = report_content(raced, None, "md").decode()
    assert re.search(r"\| m +\| a +\| +1 \| +2\.00 \|", report_markdown(standing(raced), after(raced, (3,))))
    assert "~2.50" in report_markdown(standing(raced), after(raced, (1,))) and "with a ~, by races" in text


def test_a_race_that_was_stopped_early_is_no_best_so_far(tmp_path):
    with CampaignStore(tmp_path / "r.sqlite") as store:
        store.want([LUCKY])
        store.keep_opened("m", {"singles": [["worker:0", 1.0]], "bound_s": 0.1}, {})
        for n, result in enumerate((Measured(0.9, 0.2, 12), Measured(0.7, 0.2, 3, stopped_early=True))):
            store.keep(LUCKY.key, StoredTrial(n, (0, 1), result, 1.0), {})
        assert standing(store)["cells"][0]["best_s"] == 0.9
        assert curves_of([Course.of(store.held()[0], 1.0, False)])[0].median_s == (1.0, 0.9, 0.9)


def test_the_best_cell_of_a_case_is_the_one_farthest_ahead_of_what_ran_beside_it(tmp_path):
    """Seconds of two cells are of other minutes: the slower mapping may be the better one."""
    finals = {"m: a, seed 0": (0.040, 0.060), LUCKY.key: (0.039, 0.0565)}
    with CampaignStore(tmp_path / "m.sqlite") as store:
        store.want([WantedCell("m: a, seed 0", "m", MEASURED, {}, "a", 0, 1, None), replace(LUCKY, measurements=1)])
        store.keep_opened("m", {"singles": [["worker:0", 0.06]], "bound_s": 0.01}, {})
        for key, (best_s, single_s) in finals.items():
            store.keep(key, StoredTrial(0, (0, 1), Measured(best_s, 0.001, 9), 1.0), {})
            final = {"n": 1, "best_s": best_s, "best_single_s": single_s, "untouched_s": None, "devices": [0, 1]}
            store.keep_final(key, {**final, "spread_s": 0.001, "repeats": 30})
        record = campaign_record(store, {})
        assert any(line.startswith("The best: 40 ms") for line in record.cases[0].summary), record.cases[0].summary
        assert "m 1.50" in report_content(store, None, "html").decode()


def test_a_mapping_without_a_single_device_beside_it_comes_after_those_with_one():
    assert lead(0.05, None) < lead(0.04, None) < lead(0.9, 0.5) < lead(0.04, 0.06)


def test_no_race_counts_as_better_than_what_the_cell_came_to_at_its_end(measured, tmp_path):
    with CampaignStore(tmp_path / "m.sqlite") as store:
        final = {"n": 3, "best_s": 1.0, "best_single_s": 1.05, "untouched_s": 1.2, "devices": [0, 1]}
        store.keep_final("m: a, seed 0", {**final, "spread_s": 0.1, "repeats": 9})
    (row,) = after(measured, (2, 3))
    assert row["after"] == {"2": 1.05, "3": 1.05}


def test_predicted_cells_are_not_of_races(done):
    with CampaignStore(done / "campaign.sqlite", reads=True) as store:
        assert "~" not in report_content(store, None, "md").decode()
        assert "Predicted: the best mappings are" in gains(store)


def test_a_search_whose_minutes_are_over_counts_for_all_larger_budgets(tmp_path):
    with CampaignStore(tmp_path / "m.sqlite") as store:
        spent = replace(LUCKY, minutes=1 / 60)
        store.want([spent])
        store.keep_opened("m", {"singles": [["worker:0", 1.0]], "bound_s": 0.1}, {})
        store.keep(LUCKY.key, StoredTrial(0, (0, 1), Measured(0.4, 0.2, 3), 5.0), {})
        (found,) = after(store, (1, 50))
        assert found["after"] == {"1": 2.5, "50": 2.5}
