"""The benches search-quality and sample-efficiency: figures of comparisons whose truth is known, kept and resumed."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from experiments.benches import comparisons
from experiments.benches.bench import BenchOptions
from experiments.benches.sample_efficiency import page as efficiency_page
from experiments.benches.sample_efficiency import run as sample_efficiency
from experiments.benches.search_quality import enumerated
from experiments.benches.search_quality import run as search_quality
from experiments.benches.search_quality.enumerated import FINALISTS, _finalists, canonical, enumerate_job, placements
from experiments.benches.search_quality.page import headline, page_lines
from experiments.jobs.search.finding import Progress, Trial
from experiments.jobs.search.job import Job
from experiments.jobs.search.settings import SearchSettings
from placer.errors import PlacerError
from placer.graph.mapping import Mapping
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from placer.result import Measured
from search.defaults import DEFAULT_SEARCHER
from search.problem.problem import Problem
from tests.experiments.benches.run_bench import run_bench

pytestmark = pytest.mark.slow


def entry(step_s, regret, each_s=2.0, single_s=0.2):
    """One searcher of a comparison."""
    return {
        "step_s": step_s, "spread_s": 0.001, "repeats": 20, "ratio_to_best_single": single_s / step_s,
        "measured": len(regret) - 1, "asking_s": 1.0, "ended": "used up.", "regret": regret,
        "at_s": [each_s * (i + 1) for i in range(len(regret) - 1)],
    }  # fmt: skip


def comparison(ours, peers, single_s=0.2):
    """What `placer compare --json` would say."""
    best = min([ours[0], single_s, *(peer[0] for peer in peers.values())])
    rows = {DEFAULT_SEARCHER: entry(*ours), **{name: entry(*peer) for name, peer in peers.items()}}
    return {
        "default_searcher": DEFAULT_SEARCHER, "searchers": rows, "best_known_s": best, "lower_bound_s": 0.05,
        "best": {"by": "x", "step_s": best, "spread_s": 0.001}, "in_process_s": 0.09, "measured": 30, "seconds": 60.0,
        "best_single": {"step_s": single_s, "spread_s": 0.002, "repeats": 20}, "seed": 0,
        "longer": {"searcher": "genetic, longer", "measured": 50, "step_s": best, "ended": "used up."},
    }  # fmt: skip


FALLING = [1.0, 0.5, 0.5, 0.4, 0.3, 0.2, 0.04, 0.03, 0.02, 0.01, 0.01, 0.0]
FOUND = {
    "towers": comparison((0.1, FALLING), {"heft": (0.3, [1.0, 1.0]), "random": (0.11, [1.0, 0.5, 0.1], 8.0)}),
    "moe": comparison((0.25, [0.25, 0.25]), {"heft": (0.16, [0.25, 0.0])}),
    "vgg16": {"failed": "placer: no."},
}
SPACE = {
    "gap": 0.015, "delivered_s": 0.1015, "delivered_spread_s": 0.001, "delivered_by": DEFAULT_SEARCHER, "best_s": 0.1,
    "best_spread_s": 0.001, "best_by": "enumerated", "best_rank_predicted": 3, "units": 9, "groups": 12, "space": 256,
    "whole": False, "measured": 50, "repeats": 20,
}  # fmt: skip


@pytest.fixture
def comparing(checkout, monkeypatch):
    """`checkout`, and the networks that were compared in it."""
    ran = []

    def compare(settings):
        ran.append(settings["model"])
        return FOUND[settings["model"]] | {"seed": settings["seed"]}

    monkeypatch.setattr(comparisons, "compare_in_process", compare)
    monkeypatch.setattr(comparisons, "seeds_of", lambda network: (0,))
    monkeypatch.setattr(search_quality, "enumerated", lambda options: {"alexnet": SPACE})
    return SimpleNamespace(path=checkout, ran=ran)


def options(comparing, **changes):
    return BenchOptions(tuple(FOUND), runs=comparing.path / "runs", **changes)


def test_ours_is_what_a_search_delivers_and_peers_are_what_they_proposed(comparing):
    facts = run_bench("search-quality", options(comparing), record=True)
    towers, moe = facts["by_model"]["towers"], facts["by_model"]["moe"]
    assert (towers["ratio_to_best_single"], towers["best_peer"]) == (2.0, "random")
    assert towers["vs_peer"] == pytest.approx(1.1)
    assert (moe["step_s"], moe["ratio_to_best_single"], moe["delivers_single"]) == (0.2, 1.0, True)
    assert facts["worst_vs_peer"] == moe["vs_peer"] == pytest.approx(0.8)
    assert facts["geomean_ratio"] == pytest.approx(2**0.5)
    assert facts["gap_to_enumerated"] == 0.015
    page = (comparing.path / "BENCHMARKS.md").read_text()
    assert "| 100.0 ms +- 1.0 ms | 2.00 | random | 110.0 ms | 1.100 |" in page
    assert "failed: placer: no." in page
    assert "256 placements" in page and "Gap: 1.5%" in page


def test_a_peer_would_deliver_the_single_device_too(comparing, monkeypatch):
    monkeypatch.setitem(FOUND, "moe", comparison((0.25, [0.25, 0.25]), {"heft": (0.24, [0.25, 0.2])}))
    facts = run_bench("search-quality", options(comparing), record=True)
    moe = facts["by_model"]["moe"]
    assert (moe["best_peer_s"], moe["vs_peer"]) == (0.24, 1.0)
    old = {**facts, "by_model": {"moe": {**moe, "vs_peer": 1.2}}, "worst_vs_peer": 1.2}
    for lines in (page_lines(facts), page_lines(old)):
        (row,) = (line for line in lines if line.startswith("| `moe` | 200.0 ms"))
        assert "| heft | 240.0 ms | 1.000 |" in row and "Worst against a peer: 1.000." in lines


def test_what_a_signal_ended_is_compared_again(tmp_path, monkeypatch):
    told = iter([{"interrupted": True, "measured": 3}, FOUND["towers"]])
    monkeypatch.setattr(comparisons, "command_facts", lambda *_, seconds: next(told))
    again = BenchOptions(("towers",), runs=tmp_path)
    assert comparisons.compared("towers", again) == {"failed": "a signal ended it before its time"}
    assert comparisons.compared("towers", again) == FOUND["towers"]


def test_gaps_are_read_off_the_curves(comparing):
    facts = run_bench("sample-efficiency", options(comparing), record=True)
    towers, moe = facts["by_model"]["towers"], facts["by_model"]["moe"]
    assert [towers[f"gap_at_{count}"] for count in (5, 10, 20)] == [0.2, 0.01, 0.0]
    assert (towers["near_after"], moe["near_after"]) == (6, None)
    assert facts["gap_at_20"] == moe["gap_at_20"] == 0.25
    assert towers["searchers"]["random"]["gap"] == pytest.approx(0.1)
    page = (comparing.path / "BENCHMARKS.md").read_text()
    after = [towers["searchers"]["random"][f"gap_after_{seconds}_s"] for seconds in (10, 30, 60)]
    assert after == [0.5, 0.1, 0.1]  # with results after 8 and 16 s
    assert towers["gap_after_10_s"] == towers["gap_at_5"] and towers["seconds"] == 22.0
    assert facts["mean_gaps"]["10"] == pytest.approx(0.13) and facts["mean_gap_intervals"]["10"] is None
    assert f"| {DEFAULT_SEARCHER} | 22.5% | 12.5% | 12.5% | 12 s |" in page
    assert f"| {DEFAULT_SEARCHER} | 22.5% | 13.0% | 12.5% | 1 of 2 | 1 to 11 |" in page
    assert "| `towers` | 100.0 ms |" in page and "20.0% / 1.0% / 0.0%" in page and "![Gap" in page
    assert "Each searcher ran with one seed." not in page and "from which no searcher learnt" in page
    assert (comparing.path / "docs" / "regret.png").read_bytes().startswith(b"\x89PNG")


def test_near_is_who_delivers_what_is_near(comparing, monkeypatch):
    monkeypatch.setitem(FOUND, "moe", comparison((0.25, [0.25, 0.0, 0.2]), {"heft": (0.16, [0.25, 0.2, 0.0])}))
    facts = run_bench("sample-efficiency", options(comparing), record=True)
    moe = facts["by_model"]["moe"]
    assert (moe["near_after"], moe["searchers"]["heft"]["near_after"]) == (None, 2)
    old = {key: value for key, value in facts.items() if key not in ("measured_again_at", "seeds")}
    old["by_model"] = {"moe": {key: fact for key, fact in moe.items() if key != "longer"} | {"near_after": 1}}
    page = "\n".join(efficiency_page.page_lines(old))
    assert "| heft | 0.0% | 0.0% | 0.0% | 1 of 1 |" in page and "| 20.0% | 20.0% | 20.0% | 0 of 1 |" in page
    assert "may count as fast" in page and "may count as fast" not in (comparing.path / "BENCHMARKS.md").read_text()
    assert "Each searcher ran with one seed." in page and "one more search" not in page


def test_quick_networks_are_compared_with_several_seeds_which_count_by_their_mean(comparing, monkeypatch):
    monkeypatch.setattr(comparisons, "seeds_of", lambda network: (0, 1) if network == "towers" else (0,))
    asked = []

    def compare(settings):
        asked.append((settings["model"], settings["seed"], settings["longer"]))
        ours = (0.1, FALLING) if settings["seed"] == 0 else (0.125, [1.0, 0.25])
        return comparison(ours, {"heft": (0.3, [1.0, 1.0])}) | {"seed": settings["seed"]}

    monkeypatch.setattr(comparisons, "compare_in_process", compare)
    two = BenchOptions(("towers", "alexnet"), runs=comparing.path / "runs")
    facts = run_bench("sample-efficiency", two, record=False)
    assert asked == [
        ("towers", 0, comparisons.LONGER),
        ("towers", 1, comparisons.LONGER),
        ("alexnet", 0, comparisons.LONGER),
    ]
    towers = facts["by_model"]["towers"]
    assert towers["gap_at_20"] == 0.0 and towers["seeds"]["1"][DEFAULT_SEARCHER]["gap_at_20"] == 0.25
    assert facts["mean_gaps"]["20"] == pytest.approx((0.125 + 0.0) / 2)
    assert facts["gap_at_20"] == 0.25  # of all seeds the worst
    page = "\n".join(efficiency_page.page_lines(facts))
    assert "| 2 of 3 | 1 to 11 |" in page  # near at the end of all comparisons except one
    assert f"| {DEFAULT_SEARCHER} | 3.5% | 17.0% | 17.7% |" in page  # deviations of 0.2, 0.01 and 0 from 0.25
    assert "on the networks on which a comparison is quick (`towers`)" in page
    facts = run_bench("search-quality", two, record=False)
    assert len(asked) == 3  # the same runs
    by_seed = facts["by_model"]["towers"]["by_seed"]
    assert [by_seed[seed]["ratio_to_best_single"] for seed in ("0", "1")] == pytest.approx([2.0, 1.6])
    assert facts["geomean_ratio"] == pytest.approx(((2.0 * 1.6) ** 0.5 * 2.0) ** 0.5)
    assert "| `towers` | 2.00, 2.000 against heft | 1.60, 1.600 against heft |" in page_lines(facts)
    assert facts["worst_vs_peer"] == pytest.approx(1.6)
    assert facts["geomean_to_untouched"] == pytest.approx(((0.9 * 0.72) ** 0.5 * 0.9) ** 0.5)
    assert "Worst against a peer: 1.600." in page_lines(facts)
    assert "slower in 0 of 3" in headline(facts)


def test_the_page_says_where_the_longer_search_found_the_best_known_and_where_it_was_cut_short(comparing):
    facts = run_bench("sample-efficiency", options(comparing), record=False)
    found = facts["by_model"]["moe"]["longer"]
    facts["by_model"]["moe"]["longer"] = {**found, "step_s": 1.0, "measured": 7}
    said = comparisons.best_known(facts)
    assert "found the best known of 1 of 2 networks (`towers`)" in said and "`moe` (7)" in said


def test_one_campaign_serves_both_benches_and_failures_are_tried_again(comparing):
    run_bench("search-quality", options(comparing), record=False)
    assert comparing.ran == list(FOUND)
    run_bench("sample-efficiency", options(comparing), record=False)
    assert comparing.ran == [*FOUND, "vgg16"]
    run_bench("sample-efficiency", options(comparing, measurements=4), record=False)
    assert comparing.ran == [*FOUND, "vgg16", *FOUND]
    assert not (comparing.path / "docs").exists()


def test_the_folder_of_runs_may_come_from_the_environment_and_must_be_usable(comparing, monkeypatch):
    monkeypatch.setenv("PLACER_RUNS", str(comparing.path / "kept"))
    sample_efficiency.bench_facts(BenchOptions(("towers",)))
    kept = comparing.path / "kept" / "towers.json"
    assert json.loads(kept.read_text())["facts"] == FOUND["towers"]
    kept.write_text("{")
    with pytest.raises(PlacerError, match="--runs"):
        sample_efficiency.bench_facts(BenchOptions(("towers",)))


def test_nothing_measured_is_no_figure(comparing):
    assert run_bench("sample-efficiency", BenchOptions(("vgg16",)), record=True)["gap_at_20"] is None
    facts = run_bench("search-quality", BenchOptions(("vgg16",)), record=True)
    assert (facts["geomean_ratio"], facts["worst_vs_peer"]) == (None, None)


def space_of(units, kinds):
    """A chain of ops on devices of the given kinds."""
    ops = tuple(Op(f"op{i}", cost_s={"cpu": 1.0, "gpu": 0.1}) for i in range(units))
    graph = OpGraph("chain", ops, tuple(Edge(i, i + 1, 8) for i in range(units - 1)))
    devices = tuple(Device(f"{kind}:{i}", kind) for i, kind in enumerate(kinds))
    return Problem(graph, Topology(devices, (Link("*", "*", 0.0, 1e9),)))


@pytest.mark.parametrize(
    ("units", "kinds", "count"),
    [
        (5, ("cpu", "cpu"), 2**4),
        (5, ("cpu", "gpu"), 2**5),
        (4, ("cpu",) * 3, (3**3 + 1) // 2),
        (4, ("cpu",) * 4, 15),
    ],
)
def test_each_structure_is_enumerated_once(units, kinds, count):
    """Of n units on k alike devices there are the partitions of n into at most k parts (Stirling numbers)."""
    problem = space_of(units, kinds)
    found = list(placements(problem))
    assert len(found) == len(set(found)) == count
    assert all(canonical(problem, placement) == placement for placement in found)


def test_a_space_too_large_is_refused():
    with pytest.raises(PlacerError, match="cannot be enumerated"):
        list(placements(space_of(30, ("cpu", "cpu"))))


@pytest.mark.some(1)
@pytest.mark.parametrize("small", [64, 0])
def test_what_is_delivered_is_held_beside_the_fastest_of_the_space(two_cpus, monkeypatch, small):
    monkeypatch.setattr(enumerated, "SMALL", small)
    monkeypatch.setattr(enumerated, "BEST", 3)
    monkeypatch.setattr(enumerated, "DRAWN", 2)
    monkeypatch.setattr(enumerated, "FINAL_REPEATS", 3)
    settings = SearchSettings("mnist_softmax", groups=8, measurements=5, searchers=(DEFAULT_SEARCHER,))
    with Job.opened(settings, Progress()) as job:
        facts = enumerate_job(job)
        names = {canonical(job.problem, job.problem.placement(row.mapping)) for row in job.trials}
        assert len(job.trials) == facts["measured"]
        if facts["whole"]:
            assert len(names) == facts["space"] == facts["enumerated"]
        else:
            assert facts["enumerated"] <= 5
    assert facts["gap"] == facts["delivered_s"] / facts["best_s"] - 1 >= 0
    assert facts["delivered_by"] != "enumerated"
    assert facts["delivered_s"] <= facts["best_single_s"]
    assert 1 <= facts["best_rank_predicted"] <= facts["space"]


def test_an_enumerated_mapping_that_was_stopped_at_once_comes_after_all_that_were_not():
    """A single step may look fast by luck: such rows must not take the places of those that won their races."""

    def mapping(*devices):
        graph = OpGraph("two", tuple(Op(name, cost_s={"cpu": 1e-3}) for name in "ab"), ())
        return Mapping(graph, Topology((Device("x", "cpu"), Device("y", "cpu"))), devices)

    lucky = [Trial("enumerated", mapping(1, 0), Measured(0.01, repeats=1, stopped_early=True))] * FINALISTS
    won = Trial("enumerated", mapping(0, 1), Measured(0.1, repeats=6))
    single = Trial("single", mapping(0, 0), Measured(0.2, repeats=6))
    finalists = _finalists([single, won], [*lucky, won])
    assert finalists[:3] == [single, won, won] and len(finalists) == 2 + FINALISTS
