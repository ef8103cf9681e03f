"""Cuts of a line: the best of all there are, within memory, over devices of several kinds."""

from itertools import permutations

import pytest

from search.initial.contiguous import contiguous_placements
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
def test_the_best_is_the_best_of_all_cuts_or_better(build, name, seed):
    """Of the units as they come; the other line may have a better one."""
    how = dict(MACHINES[name])
    problem = Problem(build.layered(seed, layers=3, width=3), build.machine(*how.pop("kinds"), **how), "max-load")
    able = [
        p
        for p in cuts(problem)
        if problem.fits(p) and all(d in can for d, can in zip(p, problem.feasible, strict=True))
    ]
    best = min(map(problem.predict, able))
    found = contiguous_placements(problem)
    assert min(map(problem.predict, found)) <= best * (1 + 1e-12)
    assert min(abs(problem.predict(placement) - best) for placement in found) <= 1e-9 * best or len(found) == 2
    assert all(problem.fits(placement) for placement in found)


def test_searches_for_the_largest_load_start_from_them(build):
    problem = Problem(build.layered(4, layers=6), build.machine("gpu", "gpu", "cpu"), "max-load")
    assert set(contiguous_placements(problem)) <= set(starts(problem, never))


def test_where_nothing_fits_in_one_stretch_there_is_none(build):
    """Each device holds a third, the units of the middle weigh most of it."""
    problem = Problem(build.layered(2), build.machine("gpu", "gpu", "gpu", memory_bytes=(24, 24, 24)), "max-load")
    for placement in contiguous_placements(problem):
        assert problem.fits(placement)


def test_devices_of_too_many_kinds_are_left_to_other_starts(build):
    machine = build.machine(*["gpu"] * 10, memory_bytes=tuple(range(1000, 1010)))
    problem = Problem(build.layered(2, layers=2), machine, "max-load")
    assert contiguous_placements(problem) == []
