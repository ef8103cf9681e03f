"""Chains of the makespan: what they hand over is what the simulator says, and limits change no decision."""

from dataclasses import replace

import numpy as np
import pytest

from placer.graph.topology import CONTENTIONS, Link, Topology
from search.initial.nearly_singles import nearly_singles
from search.local.kernels.chain import Stretch, new_chain
from search.local.kernels.makespan_chain import cool_makespan
from search.local.kernels.rng_state import rng_states
from search.local.moves import Moves
from search.problem.longest_paths import path_tables, tails
from search.problem.memory_fit import packed
from search.problem.problem import Problem
from surrogate.jit import jit
from surrogate.simulate.kernels.event_loop import light
from surrogate.simulate.kernels.run_state import begins, workspace

STEPS, STRETCHES = 40, 6


def problems(build, contention="none", schedule="rank", **link):
    machine = replace(build.machine("gpu", "gpu", "gpu", "cpu", **link), contention=contention)
    return Problem(build.layered(3, layers=8, width=4), machine, "makespan", schedule)


def annealed(problem, tables, heat_s, seed=0):
    """The chain's row and value after each stretch, with all that it handed over."""
    rng = np.random.default_rng(seed)
    moves = Moves(problem)
    start = np.array(next(nearly_singles(problem)), np.int32)
    chain = new_chain(moves.space, start, rng_states(rng, 1)[0])
    for _ in range(STRETCHES):
        move_shares = moves.move_shares([start, chain.row])
        cool_makespan(tables, moves.space, move_shares, chain, Stretch(STEPS, heat_s, 0.5, np.inf))
        found = [
            (float(s), tuple(row)) for s, row in zip(chain.found_s, chain.found.tolist(), strict=True) if s < np.inf
        ]
        yield tuple(chain.row.tolist()), float(chain.value_s[0]), found


@pytest.mark.parametrize("contention", CONTENTIONS)
@pytest.mark.parametrize("schedule", ["rank", "donf", "fifo"])
@pytest.mark.parametrize("link", [{}, {"send_s": 0.1, "receive_s": 0.2}])
def test_values_are_the_simulators_to_the_last_bit(build, contention, schedule, link):
    problem = problems(build, contention, schedule, **link)
    for row, value_s, found in annealed(problem, problem.simulator.tables, heat_s=0.5):
        assert value_s == problem.predict(row)
        for handed_s, placement in found:
            assert handed_s == problem.predict(placement)


@pytest.mark.parametrize("heat_s", [0.0, 1.0])
def test_to_know_how_much_must_follow_ends_runs_early_and_changes_no_decision(build, heat_s):
    problem = problems(build)
    plain = problem.simulator.tables
    known = plain._replace(tail_s=tails(path_tables(plain, problem.limits, problem.graph.order)).min(axis=1))
    assert known.tail_s.max() > 0
    assert list(annealed(problem, known, heat_s)) == list(annealed(problem, plain, heat_s))


def test_without_heat_it_only_climbs(build):
    problem = problems(build)
    values = [value for _, value, _ in annealed(problem, problem.simulator.tables, heat_s=0.0)]
    assert values == sorted(values, reverse=True)
    assert values[-1] < problem.predict(next(nearly_singles(problem)))


def test_from_a_placement_that_lacks_a_link_a_chain_finds_its_way_and_keeps_none_of_it(build):
    """A machine whose third device reaches no other."""
    devices = build.machine("gpu", "gpu", "gpu").devices
    pairs = [(a.name, b.name) for a in devices[:2] for b in devices[:2] if a is not b]
    machine = Topology(devices, tuple(Link(a, b, 0.01, 100.0) for a, b in pairs))
    problem = Problem(build.layered(3, layers=8, width=4), machine)
    rng = np.random.default_rng(1)
    start = np.array([rng.choice(able) for able in problem.feasible], np.int32)
    assert problem.predict(tuple(start.tolist())) == np.inf
    moves = Moves(problem)
    chain = new_chain(moves.space, start, rng_states(rng, 1)[0])
    for _ in range(30):
        move_shares = moves.move_shares([start, chain.row])
        cool_makespan(problem.simulator.tables, moves.space, move_shares, chain, Stretch(STEPS, 0.5, 0.9, np.inf))
        row = tuple(chain.row.tolist())
        assert float(chain.value_s[0]) == problem.predict(row)
    assert problem.predict(row) < np.inf


@pytest.mark.parametrize("heat_s", [0.01, 0.5])
def test_what_is_handed_over_fits_and_has_its_makespan_though_the_chain_passes_through_what_does_not(build, heat_s):
    machine = build.machine("gpu", "gpu", "gpu", memory_bytes=(24, 30, 24))
    problem = Problem(build.layered(2), machine)
    moves, start = Moves(problem), np.array(packed(problem), np.int32)
    chain = new_chain(moves.space, start, rng_states(np.random.default_rng(1), 1)[0])
    chain.penalty[0] = 0.1
    fits = set()
    for _ in range(30):
        move_shares = moves.move_shares([start, chain.row])
        cool_makespan(problem.simulator.tables, moves.space, move_shares, chain, Stretch(STEPS, heat_s, 0.9, np.inf))
        found = [tuple(row) for s, row in zip(chain.found_s, chain.found.tolist(), strict=True) if s < np.inf]
        assert all(map(problem.fits, found))
        assert [problem.predict(row) for row in found] == [s for s in chain.found_s if s < np.inf]
        row = tuple(chain.row.tolist())
        fits.add(problem.fits(row))
        assert (float(chain.value_s[0]) == problem.predict(row)) == problem.fits(row)
    assert fits == {True, False}


@jit
def limited(tables, placements, limits_s, out):
    run = workspace(tables)
    for row in range(len(placements)):
        begins(tables, run, placements, row)
        _, out[row] = light(tables, run, len(tables.cost_s), 0, True, limits_s[row])


def test_a_run_under_a_limit_gives_the_makespan_or_nothing_and_nothing_only_above_it(build):
    problem = problems(build)
    tables = problem.simulator.tables
    tables = tables._replace(tail_s=tails(path_tables(tables, problem.limits, problem.graph.order)).min(axis=1))
    rng = np.random.default_rng(4)
    feasible = [rng.choice(devices, 300) for devices in problem.feasible]
    rows = np.array(feasible, np.int32).T.take(problem.limits.unit_of, axis=1)
    makespan_s, out = problem.simulator.makespans(rows), np.empty(len(rows))
    for share in (0.7, 0.99, 1.0, 1.2):
        limited(tables, np.ascontiguousarray(rows), makespan_s * share * (1 + 1e-9), out)
        if share >= 1:
            assert (out == makespan_s).all()
        else:
            assert ((out == makespan_s) | (out == np.inf)).all()
    assert (out < np.inf).all()
    limited(tables, np.ascontiguousarray(rows), makespan_s * 0.7, out)
    assert (out == np.inf).mean() > 0.9
