"""Cuts of a line: the best of all there are, within memory, over devices of several kinds."""

from itertools import permutations

import numpy as np
import pytest

from placer.graph.op_graph import Edge, Op, OpGraph
from search.initial.contiguous import contiguous_placements, cut, kinds_of, rough_placements
from search.initial.starts import starts
from search.problem.problem import Problem
from search.problem.searcher import never


def cuts(problem):
    """Every placement of units, as they come, in one stretch a device."""
    units, devices = len(problem.units), range(len(problem.topology))
    for used in range(1, len(devices) + 1):
        for order in permutations(devices, used):
            yield from _splits(order, units)


def _splits(order, units):
    if len(order) == 1:
        yield (order[0],) * units
        return
    for first in range(1, units - len(order) + 2):
        for rest in _splits(order[1:], units - first):
            yield (order[0],) * first + rest


MACHINES = {
    "alike": {"kinds": ("gpu", "gpu", "gpu")},
    "two kinds": {"kinds": ("gpu", "gpu", "cpu")},
    "tight": {"kinds": ("gpu", "gpu", "gpu"), "memory_bytes": (30, 20, 40)},
}


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("seed", range(3))
def test_the_best_cut_is_the_best_of_all_there_are(build, name, seed):
    how = dict(MACHINES[name])
    problem = Problem(build.layered(seed, layers=3, width=3), build.machine(*how.pop("kinds"), **how), "max-load")
    able = [
        p
        for p in cuts(problem)
        if problem.fits(p) and all(d in can for d, can in zip(p, problem.feasible, strict=True))
    ]
    best = min(map(problem.predict, able))
    as_they_come = cut(problem, np.arange(len(problem.units), dtype=np.int32), kinds_of(problem))
    assert problem.predict(as_they_come) == pytest.approx(best, rel=1e-12)
    found = list(contiguous_placements(problem))
    assert as_they_come in found
    assert all(problem.fits(placement) for placement in found)


def test_rough_cuts_are_nearly_as_good_and_are_those_of_units_where_these_are_few(build, monkeypatch):
    problem = Problem(build.layered(4, layers=40, width=5), build.machine("gpu", "gpu", "cpu"), "max-load")
    exact = list(contiguous_placements(problem))
    assert list(rough_placements(problem)) == exact
    monkeypatch.setattr("search.initial.contiguous.ROUGH_WORK", 50 * len(problem.graph))
    rough = list(rough_placements(problem))
    assert rough != exact and all(map(problem.fits, rough))
    best, near = (min(map(problem.predict, found)) for found in (exact, rough))
    assert best <= near < 1.1 * best
    monkeypatch.setattr("search.initial.contiguous.ROUGH_WORK", 4 * len(problem.graph))
    assert list(rough_placements(problem)) == []


def test_searches_for_the_largest_load_start_from_them(build):
    problem = Problem(build.layered(4, layers=6), build.machine("gpu", "gpu", "cpu"), "max-load")
    assert set(contiguous_placements(problem)) <= set(starts(problem, never))


def test_where_no_cut_fits_there_is_none(build):
    """A chain that weighs 3, 1, 3, 1 bytes, and devices that hold 6 and 2: the two light ones belong together."""
    ops = tuple(
        Op(name, cost_s={"gpu": 1.0}, memory_bytes=size) for name, size in zip("abcd", (3, 1, 3, 1), strict=True)
    )
    graph = OpGraph("uneven", ops, tuple(Edge(v, v + 1, 1) for v in range(3)))
    problem = Problem(graph, build.machine("gpu", "gpu", memory_bytes=(6, 2)), "max-load")
    assert [*contiguous_placements(problem), *rough_placements(problem)] == []
    assert problem.fits(min(starts(problem, never), key=problem.predict))


def test_devices_of_too_many_kinds_are_left_to_other_starts(build):
    machine = build.machine(*["gpu"] * 10, memory_bytes=tuple(range(1000, 1010)))
    problem = Problem(build.layered(2, layers=2), machine, "max-load")
    assert [*contiguous_placements(problem), *rough_placements(problem)] == []
