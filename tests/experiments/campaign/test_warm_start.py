"""Warm starts: what another campaign found is asked first, and stays the same whatever becomes of the other store."""

from dataclasses import replace
from itertools import count

import pytest

from experiments.campaign.predicted import PredictedCase
from experiments.campaign.run import Campaign
from experiments.campaign.spec import read_spec
from experiments.campaign.standing import standing
from experiments.campaign.store import CampaignStore, Held, StoredTrial
from experiments.campaign.warm_start import MOST, WARM, warm_facts
from experiments.report.campaign.markdown import report_markdown
from experiments.report.campaign.warm_starts import warm_lines
from placer.errors import BadInputError, PlacerError
from placer.graph.graph_files import read_graph, write_graph, write_topology
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Device, Link, Topology
from placer.result import Failed, Measured

OTHER = "other.sqlite"


class Contrary(PredictedCase):
    """A case whose clock finds every op of tower1 far slower on the second device than predicted."""

    clocked = True

    def evaluate(self, placement, calibration):
        problem = self.problem(None)
        at = zip(problem.graph.ops, problem.devices(placement), strict=True)
        wrong = sum(d == 1 for op, d in at if "tower1" in op.name)
        return Measured(super().evaluate(placement, calibration).step_s + 10.0 * wrong)


def run(folder, *more, **fields):
    """Run the folder's campaign; its standing, and the placements of each cell."""
    spec = read_spec(folder / "campaign.toml", more)
    with CampaignStore(spec.store) as store:
        Campaign(spec, store, **fields).run()
        return standing(store), {held.key: [t.placement for t in held.trials] for held in store.held()}


@pytest.fixture
def warm(folder, edited):
    """A folder whose campaign ran into other.sqlite, and that now has one over a graph with other costs, warm."""
    edited("seeds = [0, 1]", f'seeds = [0, 1]\nstore = "{OTHER}"')
    run(folder)
    graph = read_graph(folder / "towers.json")
    ops = tuple(replace(op, cost_s={"cpu": op.cost_s["cpu"] * 1.3}) for op in graph.ops)
    write_graph(folder / "wider.json", OpGraph("wider", ops, graph.edges))
    edited(f'store = "{OTHER}"', f'warm_start = ["{OTHER}"]')
    edited("towers.json", "wider.json")
    return folder


def fastest(folder):
    with CampaignStore(folder / OTHER, reads=True) as store:
        return min((t.result.step_s, t.placement) for held in store.held() for t in held.trials)


def test_the_fastest_of_an_alike_case_is_asked_first_by_every_search(warm):
    facts, asked = run(warm)
    (row,) = facts["warm_starts"]
    assert 1 <= len(row["carried"]) <= MOST
    assert {found["store"] for found in row["carried"]} == {OTHER}
    firsts = {tuple(placements[: len(row["carried"])]) for placements in asked.values()}
    assert len(firsts) == 1
    assert firsts.pop()[0] == fastest(warm)[1]


def test_the_report_says_what_was_carried_and_what_came_of_it(warm):
    facts, _ = run(warm)
    (line,) = warm_lines(facts)
    assert line in report_markdown(facts, [])
    assert "wider.json on two.json: " in line and "carried over from towers.json on two.json in other.sqlite" in line
    for seconds in ("predicted_s", "step_s"):
        assert facts["warm_starts"][0]["carried"][0][seconds] > 0
    assert f"tried, it came to {facts['warm_starts'][0]['first_s'] * 1e3:.4g}" in line


@pytest.mark.parametrize(
    ("refused", "first_s", "own_first_s"), [((), 5.0, 4.0), ((1,), 5.0, 3.0), ((0, 1, 2), None, 2.0)]
)
def test_the_first_that_a_search_chose_itself_is_the_first_that_was_measured(refused, first_s, own_first_s):
    """One placement is carried over, and the four results are of a search's first questions."""
    trials = tuple(
        StoredTrial(n, (n, 0), Failed("memory", "too large") if n in refused else Measured(5.0 - n), 0.1, n in refused)
        for n in range(4)
    )
    held = Held("local", "towers", "predicted", "local", 0, 4, None, None, None, None, trials)
    asked_nothing = replace(held, trials=())
    warm = {"carried": [{"placement": [0, 0], "case": "towers", "store": OTHER}], "cases": [], "start_s": None}
    facts = warm_facts("towers", {WARM: warm}, [held, asked_nothing])
    assert (facts["first_s"], facts["own_first_s"]) == (first_s, own_first_s)


def test_what_was_carried_counts_as_measured_and_is_not_asked_again(warm):
    _, asked = run(warm)
    for placements in asked.values():
        assert len(placements) <= 5
        assert len(set(placements)) == len(placements)


@pytest.mark.parametrize("stop", [3, 20, 60, 100])
def test_a_warm_campaign_that_was_stopped_goes_on_without_the_other_store_and_asks_the_same(warm, stop):
    straight = run(warm)[1]
    (warm / "campaign.sqlite").unlink()
    calls = count()
    half = run(warm, over=lambda: next(calls) > stop)[1]
    assert sum(map(len, half.values())) < sum(map(len, straight.values()))
    (warm / OTHER).unlink()
    assert run(warm)[1] == straight


def test_to_go_on_without_the_warm_start_contradicts_the_store(warm, edited):
    run(warm)
    edited(f'warm_start = ["{OTHER}"]\n', "")
    with pytest.raises(BadInputError, match="warm_start") as refused:
        run(warm)
    assert "\n" not in str(refused.value)


def test_a_warm_start_in_the_middle_contradicts_the_store(warm, edited):
    edited(f'warm_start = ["{OTHER}"]\n', "")
    run(warm)
    with pytest.raises(BadInputError, match="warm_start"):
        run(warm, warm / OTHER)


def test_the_option_and_the_key_say_the_same(warm, edited):
    keyed = run(warm)[1]
    edited(f'warm_start = ["{OTHER}"]\n', "")
    assert run(warm, warm / OTHER)[1] == keyed  # complete, so nothing is asked; and nothing contradicts


def test_nothing_is_carried_from_another_objective_or_graph(warm, edited):
    edited('["two.json"]', '["two.json"]\nobjective = "max-load"')
    facts, _ = run(warm)
    (row,) = facts["warm_starts"]
    assert row["carried"] == []


def test_what_did_not_beat_the_best_single_device_is_not_carried(folder, edited):
    """Links so slow that every split is slower."""
    devices = (Device("cpu:0", "cpu"), Device("cpu:1", "cpu", speed=0.9))
    write_topology(folder / "two.json", Topology(devices, (Link("*", "*", 1000.0, 100.0),)))
    edited("seeds = [0, 1]", f'seeds = [0, 1]\nstore = "{OTHER}"')
    run(folder)
    edited(f'store = "{OTHER}"', f'warm_start = ["{OTHER}"]')
    assert run(folder)[0]["warm_starts"][0]["carried"] == []


def test_what_is_predicted_far_behind_the_best_start_is_not_carried(warm):
    """Links have become so slow that no split is worth trying."""
    devices = (Device("cpu:0", "cpu"), Device("cpu:1", "cpu", speed=0.9))
    write_topology(warm / "two.json", Topology(devices, (Link("*", "*", 1000.0, 100.0),)))
    (row,) = run(warm)[0]["warm_starts"]
    assert row["carried"] == []
    assert row["cases"][0]["mappings"] > 0 and "near the best start" in row["line"]


def test_what_the_clock_said_is_carried_not_what_was_predicted(folder, edited):
    """The other campaign measured that its simulator is wrong; a search with the same simulator gains from it."""
    edited("[2, 5]", "12")
    edited("seeds = [0, 1]", f'seeds = [0, 1]\nstore = "{OTHER}"')
    opener = {"opener": lambda case, *_: Contrary(case)}
    run(folder, **opener)
    edited(f'store = "{OTHER}"', f'warm_start = ["{OTHER}"]')
    (row,) = run(folder, **opener)[0]["warm_starts"]
    assert row["first_s"] == fastest(folder)[0]


def test_a_case_without_a_stored_shape_is_said_to_have_none(warm):
    with CampaignStore(warm / OTHER) as store:
        assert store.connection.execute("DELETE FROM contents").rowcount == 1
    facts, _ = run(warm)
    assert facts["warm_starts"][0]["carried"] == []


@pytest.mark.parametrize("name", ["none.sqlite", "towers.json", "campaign.sqlite"])
def test_a_warm_start_from_what_is_no_other_store_is_refused_before_anything_is_searched(warm, edited, name):
    edited(OTHER, name)
    with pytest.raises(PlacerError, match="warm start") as refused:
        run(warm)
    assert "\n" not in str(refused.value)
    with CampaignStore(warm / "campaign.sqlite", reads=True) as store:
        assert not any(held.trials for held in store.held())
