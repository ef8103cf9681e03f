"""The second stage of HTF-MPR: measured mappings train a predictor, and what it predicts fastest is measured."""

import json
from dataclasses import replace

import numpy as np
import pytest

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from placer.result import Failed, Measured
from search.initial.expert import expert_placements
from search.learned.genetic import Breeding, Genetic
from search.learned.htf_mpr import HtfMpr, HtfMprPlain, HtfMprSettings
from search.learned.htf_mpr_views import SimulatedNumbers
from search.learned.results import results_s
from search.list_scheduling.heft import heft_placement
from search.problem.problem import Problem
from surrogate.features.mapping_features import MAKESPAN

EAGER = HtfMprSettings(first=6, generations=8, breeding=Breeding(size=30, elites=8), regressor="ridge")
BOTH = pytest.mark.parametrize("kind", [HtfMpr, HtfMprPlain])


def clock(problem, placement):
    """The simulator forgets that each tensor that crosses costs dearly."""
    crossings = sum(placement[problem.unit_of[e.src]] != placement[problem.unit_of[e.dst]] for e in problem.graph.edges)
    return Measured(problem.predict(placement) * (1 + 0.2 * crossings))


def asked(searcher, count, resume_at=None):
    placements = []
    for i in range(count):
        if i == resume_at:
            saved = json.loads(json.dumps(searcher.state()))
            searcher = type(searcher)(searcher.problem, seed=99, settings=searcher.settings)
            searcher.restore(saved)
        placements.append(searcher.problem.placement(searcher.ask()))
        searcher.tell(searcher.problem.mapping(placements[-1]), clock(searcher.problem, placements[-1]))
    return placements


def test_what_the_simulator_misses_is_learnt(problem):
    """What is bred for the learned times comes out faster than what is bred for the predicted ones."""
    learned = asked(HtfMpr(problem, settings=EAGER), 14)[EAGER.first :]
    predicted = problem.placement(Genetic(problem).ask())
    assert min(clock(problem, p).step_s for p in learned) <= clock(problem, predicted).step_s


@pytest.mark.some(3)
@BOTH
@pytest.mark.parametrize("resume_at", [4, 8])
def test_a_search_resumed_in_either_stage_goes_on_the_same(problem, kind, resume_at):
    straight = asked(kind(problem, seed=5, settings=EAGER), 10)
    assert asked(kind(problem, seed=5, settings=EAGER), 10, resume_at=resume_at) == straight


def test_it_begins_with_single_devices_heft_the_expert_and_bayesian_optimisation(towers):
    searcher = HtfMpr(towers, settings=EAGER)
    first = asked(searcher, EAGER.first)
    assert len(set(first[0])) == 1 and first[1] == heft_placement(towers)
    assert next(expert_placements(towers)) in first[1:3]  # here both are the same
    assert searcher.population == []


def test_without_a_simulator_it_begins_without_heft(towers):
    first = asked(HtfMprPlain(towers, settings=EAGER), EAGER.first)
    assert len(set(first[0])) == 1 and first[1] == next(expert_placements(towers))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [HtfMpr, pytest.param(HtfMprPlain, marks=pytest.mark.nightly)])
def test_the_regressors_are_compared_and_the_change_of_stages_is_noted(towers, kind):
    searcher = kind(towers, settings=replace(EAGER, first=8, regressor=None))
    asked(searcher, 8)
    assert searcher.notes == []
    asked(searcher, 6)
    assert searcher.notes[0].startswith("stage 2 after 8 mappings: the genetic algorithm's fitness is ")
    assert searcher.chosen in searcher.view.regressors() and f"is {searcher.chosen}, which erred" in searcher.notes[-1]
    assert searcher.compared == 12


def test_regressors_are_compared_by_mappings_that_ran_and_by_costs_that_have_not_seen_them(towers, monkeypatch):
    """Calibrated costs fit what was told, and a failure's place in the table is no time that was measured."""
    given = []

    def compared(names, x, step_s, seed):
        given.append((x, step_s))
        return {"ridge": 0.1}

    monkeypatch.setattr("surrogate.learn.selection.compared_in_order", compared)
    calibrated = replace(towers, cost_s=3 * towers.costs, profiled=lambda: towers)
    searcher = HtfMpr(towers, settings=replace(EAGER, regressor=None))
    searcher.rebase(calibrated)
    for i in range(EAGER.first):
        searcher.tell(searcher.ask(), Failed("error") if i == 3 else Measured(1.0 + i))
    searcher.ask()
    ((x, step_s),) = given
    assert step_s.tolist() == [1.0, 2.0, 3.0, 5.0, 6.0] and searcher.compared == EAGER.first
    ran = [p for p, result in searcher.told.items() if isinstance(result, Measured)]
    assert x[:, MAKESPAN] == pytest.approx(towers.predict_many(ran))
    assert searcher.view.table(ran)[:, MAKESPAN] == pytest.approx(calibrated.predict_many(ran))


@pytest.mark.some(1)
def test_what_the_devices_alone_say_is_learnt(problem):
    """Where each stretch of the network has a device that suits it, that is found without any simulated number."""
    searcher = HtfMprPlain(problem, settings=replace(EAGER, first=10, stretches=4))
    suits = searcher.view.stretches.of % len(problem.topology)
    times = []
    for _ in range(24):
        placement = np.array(problem.placement(searcher.ask()))
        times.append(1.0 + float(np.mean(placement != suits)))
        searcher.tell(problem.mapping(placement.tolist()), Measured(times[-1]))
    assert np.mean(times[10:]) - 1 < 0.7 * (np.mean(times[:10]) - 1)


def test_the_plain_features_are_shares_of_stretches(problem):
    searcher = HtfMprPlain(problem, settings=replace(EAGER, stretches=4))
    placements, of = np.array(asked(searcher, 5)), searcher.view.stretches.of
    table = searcher.view.table([tuple(row) for row in placements])
    shares = [(placements[:, of == i] == d).mean(axis=1) for i in range(4) for d in range(len(problem.topology))]
    assert table == pytest.approx(np.column_stack(shares))


def test_the_plain_one_asks_nothing_of_the_simulator(problem, monkeypatch):
    for name in ("predict", "predict_many"):
        monkeypatch.setattr(Problem, name, lambda *_: pytest.fail("it predicted"))
    searcher = HtfMprPlain(problem, settings=EAGER)
    for i in range(9):
        searcher.tell(searcher.ask(), Measured(1.0 + i % 4))


def test_the_plain_one_goes_on_where_nothing_ran(towers):
    searcher = HtfMprPlain(towers, settings=EAGER)
    for _ in range(9):
        searcher.tell(searcher.ask(), Failed("error"))
    assert len(searcher.told) == 9


def test_each_ask_after_the_beginning_was_judged_by_the_predictor(towers):
    searcher = HtfMpr(towers, settings=EAGER)
    asked(searcher, EAGER.first)
    before = searcher.evaluations
    bred = towers.placement(searcher.ask())
    assert searcher.evaluations > before and bred in searcher.population


def test_the_simulated_step_is_the_objective_of_the_problem(problem):
    placements = asked(HtfMpr(problem, settings=EAGER), 3)
    table = HtfMpr(problem).view.table(placements)
    assert table[:, MAKESPAN] == pytest.approx(problem.predict_many(placements))


def test_without_a_success_the_predicted_objective_stands_in(towers):
    searcher = HtfMpr(towers, settings=EAGER)
    for _ in range(8):
        searcher.tell(searcher.ask(), Failed("error"))
    placements = list(searcher.told)
    assert results_s(searcher.told) == {}
    assert searcher._fitness({})(placements) == towers.predict_many(placements).tolist()


def test_a_missing_link_is_worth_infinity_and_is_never_asked():
    ops = tuple(Op(f"v{i}", cost_s={"d": 1.0}) for i in range(8))
    graph = OpGraph("chain", ops, tuple(Edge(v, v + 1, 1) for v in range(7)))
    one_way = Problem(graph, Topology((Device("x", "d"), Device("y", "d")), (Link("x", "y", 0.1, 100.0),)))
    searcher = HtfMpr(one_way, settings=EAGER)
    for i in range(10):
        placement = one_way.placement(searcher.ask())
        value = one_way.predict(placement)
        assert i < EAGER.first or value < np.inf
        result = Measured(value) if value < np.inf else Failed("link")
        searcher.tell(one_way.mapping(placement), result)


@pytest.mark.parametrize("name", ["ridge", "forest"])
def test_any_regressor_may_be_the_predictor(towers, name):
    searcher = HtfMpr(towers, settings=HtfMprSettings(first=4, generations=2, regressor=name))
    assert len(set(asked(searcher, 6))) == 6


def test_for_the_largest_load_no_link_is_needed():
    """Where links are missing, mappings that cross are told apart all the same."""
    graph = OpGraph("pair", tuple(Op(name, cost_s={"cpu": 1.0}) for name in "abc"), (Edge(0, 1, 8), Edge(1, 2, 8)))
    apart = Problem(graph, Topology((Device("x", "cpu"), Device("y", "cpu")), ()), "max-load")
    table = SimulatedNumbers(apart, 8).table([(0, 0, 0), (0, 1, 1), (0, 1, 0)])
    assert np.isfinite(table).all() and len({tuple(row) for row in table.tolist()}) == 3
