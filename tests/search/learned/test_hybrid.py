"""Hybrid: no worse than any list scheduler, optimal where that can be seen, led by the clock where it disagrees."""

import json

import numpy as np
import pytest

from placer.graph.op_graph import Op, OpGraph
from placer.result import Failed, Measured
from search.exact import exact
from search.learned import predicted_search
from search.learned.hybrid import Hybrid, HybridSettings
from search.learned.predicted_search import PredictedSearch, _Pace
from search.offline.plan import plan
from search.problem.problem import Problem
from search.problem.searcher import Deadline, SearchExhausted, fitting_placements
from search.session.registry import make_searcher
from tests.clock import Clock

LISTS = ("heft", "donf", "peft", "cpop")
UNCOUNTED = HybridSettings(enumerate=0)


def test_the_first_mapping_asked_is_no_worse_than_any_list_schedulers(hard):
    value = hard.predict(hard.placement(Hybrid(hard).ask()))
    for name in LISTS:
        assert value <= hard.predict(hard.placement(make_searcher(name, hard).ask()))


@pytest.mark.parametrize("objective", ["makespan", "max-load"])
def test_the_enumerated_optimum_is_found_without_enumerating(objective, build):
    problem = Problem(build.layered(6, layers=4), build.machine("gpu", "gpu", "cpu"), objective)
    optimum = problem.predict_many(np.array(list(fitting_placements(problem)))).min()
    searcher = Hybrid(problem, settings=UNCOUNTED)
    best = np.inf
    for _ in range(3):
        mapping = searcher.ask()
        value = problem.predict(problem.placement(mapping))
        searcher.tell(mapping, Measured(value))
        best = min(best, value)
    assert best == pytest.approx(optimum, rel=1e-9)


def test_a_small_space_is_proven_and_a_plan_of_it_ends_at_once(build):
    problem = Problem(build.two_towers(3), build.machine("cpu", "cpu"))
    ticks = iter(range(10_000))
    found = plan(problem, "hybrid", seconds=5_000, clock=lambda: float(next(ticks)))
    assert found.value == pytest.approx(found.lower_bound)
    assert found.seconds < 100


def test_a_space_that_cannot_be_predicted_in_the_time_that_is_left_is_searched(build, monkeypatch):
    """Placements in order say nothing of the best one, before they have all been looked at."""
    problem = Problem(build.layered(3, layers=3), build.machine("gpu", "gpu", "gpu", "cpu"))
    assert HybridSettings.enumerate < problem.space < 64 * HybridSettings.enumerate / len(problem.units)
    clock, predict = Clock(), PredictedSearch.predict

    def slow(search, rows):
        clock.now_s += 1e-4 * len(rows)
        return predict(search, rows)

    monkeypatch.setattr(PredictedSearch, "predict", slow)
    searcher = Hybrid(problem, stop=Deadline(2.0, clock))
    value = problem.predict(problem.placement(searcher.ask()))
    assert searcher.evaluations < problem.space / 2 and clock() < 2.0
    optimum = problem.predict_many(np.array(list(fitting_placements(problem)))).min()
    assert value == pytest.approx(optimum, rel=0.01)


def test_a_small_space_that_was_left_in_the_middle_is_searched_the_next_time(build, monkeypatch):
    """Its beginning has the first units on the first device alone, which is no sample of it."""
    problem = Problem(build.layered(3, layers=3), build.machine("gpu", "gpu", "gpu", "cpu"))
    monkeypatch.setattr(predicted_search, "AT_ONCE_WORK", 50 * problem.ops_and_edges)
    searcher = Hybrid(problem, stop=lambda: searcher.evaluations >= 50)
    searcher.ask()
    assert searcher.evaluations < problem.space / 2
    searcher.withdraw()
    searcher.stop = lambda: False
    value = problem.predict(problem.placement(searcher.ask()))
    optimum = problem.predict_many(np.array(list(fitting_placements(problem)))).min()
    assert value == pytest.approx(optimum, rel=0.01)


def test_between_two_looks_at_the_clock_no_more_is_predicted_than_takes_a_moment(build, monkeypatch):
    problem = Problem(build.layered(3, layers=2), build.machine("gpu", "cpu"))
    predict, at_once = PredictedSearch.predict, []

    def counting(search, rows):
        at_once.append(len(rows))
        return predict(search, rows)

    monkeypatch.setattr(PredictedSearch, "predict", counting)
    monkeypatch.setattr(predicted_search, "AT_ONCE_WORK", 7 * problem.ops_and_edges)
    value = problem.predict(problem.placement(Hybrid(problem).ask()))
    assert max(at_once) == 7
    assert value == problem.predict_many(np.array(list(fitting_placements(problem)))).min()


def test_few_placements_of_many_ops_are_not_all_held_at_once(build, monkeypatch):
    """2^16 placements of 3,016 ops would take gigabytes."""
    free = [Op(f"free{i}", cost_s={"gpu": 1.0, "cpu": 1.0}) for i in range(16)]
    graph = OpGraph("g", (*free, *(Op(f"fixed{i}", cost_s={"gpu": 1.0}) for i in range(3_000))), ())
    counted = []

    def counting(problem, *stop):
        for placement in fitting_placements(problem, *stop):
            counted.append(1)
            yield placement

    monkeypatch.setattr(predicted_search, "fitting_placements", counting)
    mapping = Hybrid(Problem(graph, build.machine("gpu", "cpu")), stop=lambda: True).ask()
    assert len(counted) <= 2 * predicted_search.AT_ONCE
    assert len(set(mapping.devices[16:])) == 1


def test_a_plan_of_a_middling_problem_is_certified(build):
    """18 ops on three unlike devices: too many mappings to predict, few enough to prove."""
    problem = Problem(build.layered(2, layers=6), build.machine("gpu", "gpu", "cpu"))
    assert problem.space > HybridSettings.enumerate
    ticks = iter(range(1_000_000))
    found = plan(problem, "hybrid", seconds=900_000, clock=lambda: float(next(ticks)))
    assert found.value == pytest.approx(found.lower_bound)


def test_the_proof_begins_from_the_best_found(build, monkeypatch):
    """It makes no starts of its own, which are no better, and takes the plan's bound."""

    def refuse(*_, **__):
        raise AssertionError("this work was done already")

    monkeypatch.setattr(Hybrid, "prepare", lambda objective: None)  # which computes them for two ops
    for name in ("starts", "climb", "lower_bound"):
        monkeypatch.setattr(exact, name, refuse)
    problem = Problem(build.layered(2, layers=6), build.machine("gpu", "gpu", "cpu"))
    ticks = iter(range(1_000_000))
    found = plan(problem, "hybrid", seconds=900_000, clock=lambda: float(next(ticks)))
    assert found.value == pytest.approx(found.lower_bound)


def test_a_proof_that_would_not_come_in_time_leaves_the_time_to_annealing():
    """A third of 30 seconds at most; the gap is of 8 seconds, of which half must be closed by then."""
    pace = _Pace(HybridSettings(), left_s=30.0, best_s=10.0, begin_s=2.0)
    assert not pace.is_over(0.5, 2.0)  # too early to tell
    assert pace.is_over(2.0, 2.5) and not pace.is_over(2.0, 3.0)
    assert pace.is_over(8.0, 5.0) and not pace.is_over(8.0, 6.0)
    assert pace.is_over(10.1, 9.9)
    assert not _Pace(HybridSettings(), left_s=np.inf, best_s=10.0, begin_s=2.0).is_over(np.inf, 2.0)


def clock(problem, placement):
    """A machine on which each crossing costs what the simulator knows nothing of."""
    crossings = sum(placement[problem.unit_of[e.src]] != placement[problem.unit_of[e.dst]] for e in problem.graph.edges)
    return problem.predict(placement) * (1 + 0.1 * crossings)


def test_where_the_clock_disagrees_the_clock_leads(build):
    """Mappings that cut much are slower than predicted: what is asked after a dozen measurements cuts less."""
    problem = Problem(build.layered(3, layers=8), build.machine("gpu", "gpu", "cpu"))
    searcher = Hybrid(problem, seed=5)
    told = []
    for _ in range(16):
        try:
            mapping = searcher.ask()
        except SearchExhausted:
            break
        placement = problem.placement(mapping)
        told.append(clock(problem, placement))
        searcher.tell(mapping, Measured(told[-1], told[-1] * 0.01, 12))
    assert min(told[4:]) < min(told[:4])


def test_a_judge_that_knows_better_decides_what_is_measured(build):
    """The judge says that units on device 1 cost more than the simulator knows: less of them are asked for."""
    graph, machine = build.layered(3, layers=8), build.machine("gpu", "gpu", "cpu")
    plain = Problem(graph, machine)

    def judge(rows):
        return plain.predict_many(rows) * (1 + 0.05 * (rows == 1).sum(axis=1))

    def asked(problem):
        """After one single device was measured, and took what the judge says."""
        searcher = Hybrid(problem)
        single = next(p for p in problem.singles())
        searcher.tell(problem.mapping(single), Measured(problem.predict(single) * 1.01, 0.001, 12))
        return problem.placement(searcher.ask())

    heeded, unheeded = asked(Problem(graph, machine, judge=judge)), asked(plain)
    assert judge(np.array([heeded]))[0] < judge(np.array([unheeded]))[0]


def test_it_ends_where_the_expected_gain_drowns_in_noise(build):
    problem = Problem(build.layered(3, layers=8), build.machine("gpu", "gpu", "cpu"))
    searcher = Hybrid(problem)
    rng = np.random.default_rng(0)
    with pytest.raises(SearchExhausted, match="under the noise"):
        for _ in range(60):
            mapping = searcher.ask()
            step_s = problem.predict(problem.placement(mapping)) * float(np.exp(rng.normal(0, 0.1)))
            searcher.tell(mapping, Measured(step_s, step_s * 0.5, 4))
    assert len(searcher.told) >= searcher.settings.fewest_measured


def test_only_a_simulated_time_counts_as_exact(build, monkeypatch):
    problem = Problem(build.layered(3, layers=8), build.machine("gpu", "gpu", "cpu"))
    searcher, seen = Hybrid(problem), []
    times = Measured(1.0), Measured(3.0, stopped_early=True), Measured(1.0, 0.1, 12)
    for result in times:
        searcher.tell(searcher.ask(), result)
    monkeypatch.setattr("surrogate.learn.residual.Residual", lambda work, sample, ratios, noise: seen.extend(noise))
    searcher._residual()
    assert seen[0] == 0.0 and seen[1] > 0.03 > seen[2] > 0.01  # one step of a clock tells less than twelve


def test_several_asked_at_once_differ_and_a_resumed_search_goes_on_alike(build):
    problem = Problem(build.layered(5, layers=8), build.machine("gpu", "gpu", "cpu"))
    one = Hybrid(problem, seed=1)
    first = one.ask()
    one.tell(first, Measured(problem.predict(problem.placement(first)) * 1.2, 0.01, 12))
    saved = json.loads(json.dumps(one.state()))
    other = Hybrid(problem, seed=99)
    other.restore(saved)
    asked = [one.ask() for _ in range(4)]
    assert len({m.devices for m in asked}) == 4
    assert [other.ask() for _ in range(4)] == asked


def test_what_fails_is_kept_away_from(build):
    """One unit cannot run on device 1, which nobody predicted: few of the mappings asked put it there."""
    problem = Problem(build.layered(3, layers=8), build.machine("gpu", "gpu", "cpu"))
    first = Hybrid(problem, seed=4)
    for single in problem.singles():
        first.tell(problem.mapping(single), Measured(problem.predict(single) * 1.01, 0.001, 12))
    wanted = problem.placement(first.ask())
    bad = next(u for u, device in enumerate(wanted) if device == 1)
    searcher, failed = Hybrid(problem, seed=4), 0

    def result(placement):
        if placement[bad] == 1:
            return Failed("error", "no kernel")
        return Measured(problem.predict(placement) * 1.01, 0.001, 12)

    for single in problem.singles():
        searcher.tell(problem.mapping(single), result(single))
    for _ in range(12):
        mapping = searcher.ask()
        failed += problem.placement(mapping)[bad] == 1
        searcher.tell(mapping, result(problem.placement(mapping)))
    assert failed <= 4
