"""Bayesian optimisation: stretches say what a mapping says, and what was measured decides what is asked."""

import json
import random

import numpy as np
import pytest

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from placer.result import Failed, Measured
from search.learned.bayesian import BayesEt, BayesGp, BayesianSettings, BayesRf, learned_from, tried_beside_singles
from search.learned.results import results_s
from search.learned.stretches import Stretches
from search.problem.problem import Problem

SEARCHERS = [BayesGp, *(pytest.param(kind, marks=pytest.mark.nightly) for kind in (BayesRf, BayesEt))]
EAGER = BayesianSettings(dimensions=8, random=2, near=50)


def chain(length, devices=2, seed=0):
    """Ops one after another, of uneven work, some of which only the first device runs."""
    rng = random.Random(seed)
    ops = []
    for i in range(length):
        cost_s = {f"d{d}": rng.uniform(1, 10) for d in range(devices if rng.random() < 0.9 else 1)}
        ops.append(Op(f"v{i}", cost_s=cost_s, memory_bytes=1))
    graph = OpGraph("chain", tuple(ops), tuple(Edge(v, v + 1, 1) for v in range(length - 1)))
    machine = Topology(tuple(Device(f"d{d}", "d") for d in range(devices)), (Link("*", "*", 0.1, 100.0),))
    return Problem(graph, machine)


def misplaced(mapping):
    """Ops away from where the clock below wants them: the first half on device 0, the second on device 1."""
    half = len(mapping.devices) // 2
    return sum(d != (v >= half) for v, d in enumerate(mapping.devices))


def clock(mapping):
    """Seconds that the simulator does not know; some mappings fail."""
    wrong = misplaced(mapping)
    return Failed("memory") if wrong == 11 else Measured(1 + wrong / 10)


def asked(searcher, count, resume_at=None):
    placements = []
    for i in range(count):
        if i == resume_at:
            saved = json.loads(json.dumps(searcher.state()))
            searcher = type(searcher)(searcher.problem, seed=99, settings=searcher.settings)
            searcher.restore(saved)
        mapping = searcher.ask()
        searcher.tell(mapping, clock(mapping))
        placements.append(searcher.problem.placement(mapping))
    return placements


@pytest.mark.parametrize("cls", SEARCHERS)
def test_what_was_measured_decides_what_is_asked(cls, pipeline):
    """Half of the ops are misplaced at random and on single devices; what the model asks is nearer to what is best."""
    found = [asked(cls(pipeline, seed=seed, settings=EAGER), 16)[8:] for seed in range(2)]
    wrong = [misplaced(pipeline.mapping(placement)) for placements in found for placement in placements]
    assert min(wrong) < 5 and np.mean(wrong) < 9


@pytest.mark.parametrize("cls", SEARCHERS)
def test_a_search_resumed_while_the_model_asks_goes_on_the_same(cls, pipeline):
    straight = asked(cls(pipeline, seed=5, settings=EAGER), 12)
    for resume_at in (7, 10):
        assert asked(cls(pipeline, seed=5, settings=EAGER), 12, resume_at) == straight


@pytest.mark.parametrize("cls", SEARCHERS)
def test_many_asks_before_a_result_all_differ(cls, pipeline):
    searcher = cls(pipeline, settings=EAGER)
    asked(searcher, 6)
    assert len({searcher.problem.placement(searcher.ask()) for _ in range(8)}) == 8


def test_only_failures_are_no_model(pipeline):
    searcher = BayesEt(pipeline, settings=EAGER)
    for _ in range(12):
        searcher.tell(searcher.ask(), Failed("error"))
    assert results_s(searcher.told) == {}


def test_a_failure_counts_as_slower_than_all_measured():
    told = {(0,): Measured(1.0), (1,): Failed("memory"), (2,): Measured(3.0)}
    assert results_s(told) == {(0,): 1.0, (1,): 6.0, (2,): 3.0}


def test_of_many_results_the_fastest_and_the_latest_are_learned_from():
    known = {(i,): float(i) for i in (9, 1, 2, 8, 3, 7, 6, 5, 4)}
    assert learned_from(known, 9) == known
    assert learned_from(known, 6) == {(1,): 1.0, (2,): 2.0, (3,): 3.0, (6,): 6.0, (5,): 5.0, (4,): 4.0}


@pytest.mark.parametrize("units", [5, 40, 700])
def test_stretches_are_contiguous_and_of_about_equal_work(units):
    problem = chain(units)
    most = 16
    of = Stretches(problem, most).of
    assert list(of) == sorted(of) and set(of) == set(range(max(of) + 1)) and max(of) < max(most, units + 1)
    work_s = np.array([np.mean([c for c in row if np.isfinite(c)]) for row in problem.unit_cost_s])
    if units <= most:
        assert list(of) == list(range(units))
    else:
        assert max(of) < most
        assert np.bincount(of, work_s).max() <= work_s.sum() / most + work_s.max() + 1e-9


def test_a_point_and_its_placement_say_the_same():
    problem, rng = chain(60, devices=3), random.Random(1)
    stretches = Stretches(problem, 12)
    for _ in range(30):
        point = stretches.drawn(rng)
        placement = stretches.placement(point)
        assert all(d in devices for d, devices in zip(placement, problem.feasible, strict=True))
        assert stretches.placement(stretches.point(placement)) == placement
        near = stretches.near(point, rng)
        assert all(d in devices for d, devices in zip(near, stretches.choices, strict=True))


def test_a_graph_without_choices_has_one_mapping():
    ops = (Op("a", cost_s={"d0": 1.0}), Op("b", cost_s={"d1": 1.0}))
    problem = Problem(OpGraph("fixed", ops, ()), chain(2).topology)
    searcher = BayesEt(problem)
    assert problem.placement(searcher.ask()) == (0, 1)


@pytest.fixture(scope="module")
def pipeline():
    return chain(20)


def test_single_devices_that_are_alike_take_the_place_of_no_random_mapping(build):
    problem = Problem(build.layered(1), build.machine("gpu", "gpu", "gpu", "gpu"))
    searcher = BayesEt(problem)
    searcher.tell(problem.mapping(problem.unlike_singles()[0]), Measured(1.0))
    assert tried_beside_singles(searcher) == 0
    for single in problem.singles():
        if single not in searcher.told:
            searcher.tell(problem.mapping(single), Measured(1.0))
    assert tried_beside_singles(searcher) == 0
    searcher.ask()
    assert tried_beside_singles(searcher) == 1
