"""Chains of the largest load: what is added up move by move is what the objective says, and small optima are found."""

from itertools import product

import numpy as np
import pytest

from placer.graph.op_graph import Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from search.initial.nearly_singles import nearly_singles
from search.local.kernels.chain import Stretch, new_chain
from search.local.kernels.load_chain import cool_loads
from search.local.kernels.rng_state import rng_states
from search.local.moves import Moves
from search.problem.memory_fit import packed
from search.problem.problem import Problem


def annealed(problem, start, steps=3000, heat_s=0.3, seed=0):
    moves = Moves(problem)
    row = np.array(start, np.int32)
    chain = new_chain(moves.space, row, rng_states(np.random.default_rng(seed), 1)[0])
    cool_loads(problem.max_load.ends, moves.space, moves.move_shares([row]), chain, Stretch(steps, heat_s, 0.5, np.inf))
    found = zip(chain.found_s, chain.found.tolist(), strict=True)
    return chain, [(float(value_s), tuple(row)) for value_s, row in found if value_s < np.inf]


@pytest.mark.parametrize("seed", range(4))
def test_loads_after_thousands_of_moves_are_those_of_the_placement(build, seed):
    problem = Problem(build.layered(seed, layers=8, width=4), build.machine("gpu", "gpu", "gpu", "cpu"), "max-load")
    _, found = annealed(problem, next(nearly_singles(problem)), seed=seed)
    assert len(found) > 2
    for value_s, placement in found:
        assert value_s == pytest.approx(problem.predict(placement), rel=1e-12)


def test_the_best_of_a_small_space_is_found(build):
    problem = Problem(build.layered(1, layers=3, width=3), build.machine("gpu", "gpu"), "max-load")
    best = min(problem.predict(placement) for placement in product(*problem.feasible))
    _, found = annealed(problem, next(problem.singles()))
    assert min(value_s for value_s, _ in found) == pytest.approx(best, rel=1e-12)


def test_what_is_handed_over_fits(build):
    problem = Problem(build.layered(2), build.machine("gpu", "gpu", "gpu", memory_bytes=(24, 30, 24)), "max-load")
    _, found = annealed(problem, packed(problem))
    assert found
    assert all(problem.fits(placement) for _, placement in found)


def four_that_fill_two_devices(objective):
    """6 and 4 bytes fit together, and so do 5 and 5. From one device to the other no move of one or two leads."""
    ops = tuple(
        Op(f"op{i}", cost_s={"gpu": there, "cpu": here}, memory_bytes=held)
        for i, (held, there, here) in enumerate([(6, 2.0, 1.0), (5, 1.0, 2.0), (4, 2.0, 1.0), (5, 1.0, 2.0)])
    )
    devices = (Device("gpu:0", "gpu", memory_bytes=10), Device("cpu:0", "cpu", memory_bytes=10))
    return Problem(OpGraph("full", ops, ()), Topology(devices, (Link("*", "*", 0.0, 1e9),)), objective)


@pytest.mark.parametrize("seed", range(4))
def test_the_way_through_placements_that_do_not_fit_is_found(seed):
    problem = four_that_fill_two_devices("max-load")
    assert [p for p in product((0, 1), repeat=4) if problem.fits(p)] == [(0, 1, 0, 1), (1, 0, 1, 0)]
    _, found = annealed(problem, (0, 1, 0, 1), seed=seed)
    assert (2.0, (1, 0, 1, 0)) in found
    assert {placement for _, placement in found} <= {(0, 1, 0, 1), (1, 0, 1, 0)}


def test_a_short_chain_stays_where_all_fits(build):
    """Of many units a misplaced one lacks a tiny share of all memory; the chain has no time to come back."""
    ops = tuple(Op(f"op{i}", cost_s={"gpu": 1.0, "cpu": 2.0}, memory_bytes=1 + i % 7) for i in range(2000))
    held = sum(op.memory_bytes for op in ops)
    devices = (Device("gpu:0", "gpu", memory_bytes=held // 2), Device("cpu:0", "cpu"))
    problem = Problem(OpGraph("many", ops, ()), Topology(devices, (Link("*", "*", 0.0, 1e9),)), "max-load")
    start = packed(problem)
    _, found = annealed(problem, start, steps=500, heat_s=1e-3)
    assert min(value_s for value_s, _ in found) < 0.99 * problem.predict(start)


def test_the_penalty_rises_while_memory_is_missing_and_falls_while_it_is_not():
    problem = four_that_fill_two_devices("max-load")
    chain, _ = annealed(problem, (0, 0, 0, 0), steps=1, heat_s=0.0)
    assert float(chain.penalty[0]) > 4
    chain, _ = annealed(problem, (1, 0, 1, 0), steps=1, heat_s=0.0)
    assert float(chain.penalty[0]) < 4


def test_what_lacks_a_tiny_share_of_all_memory_is_not_handed_over():
    """Two bytes of 1e17."""
    small = [Op(name, cost_s={"gpu": 1.0, "cpu": 9.0}, memory_bytes=6) for name in "ab"]
    ops = (Op("large", cost_s={"cpu": 1.0}, memory_bytes=10**17), *small)
    devices = (Device("gpu:0", "gpu", memory_bytes=10), Device("cpu:0", "cpu"))
    problem = Problem(OpGraph("three", ops, ()), Topology(devices, (Link("*", "*", 0.0, 1e9),)), "max-load")
    _, found = annealed(problem, (1, 0, 1), heat_s=9.0)
    assert {placement for _, placement in found} <= {(1, 0, 1), (1, 1, 0), (1, 1, 1)}
