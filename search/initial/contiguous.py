"""A dynamic program that cuts a line of units into one stretch per device, with the smallest largest load.

Pipelines are most often cut like this. The best cut of a line is a start for searches, which may then move single
units. After the program over contiguous splits of Tarnawski et al. 2020, on lines instead of all ideals of the graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from search.initial.lines import lines
from search.problem.problem import Placement, Problem
from surrogate.jit import inlined, jit
from surrogate.simulate.kernels.max_load_kernel import Ends

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]

MOST_SETS = 512  # the most sets of devices, where alike devices are interchangeable
MOST_WORK = 400_000_000  # the most work: sets times pairs of places in line
QUICK_WORK = 100_000_000  # with at most this work, a line takes less than a tenth of a second
ROUGH_WORK = 4_000_000  # the most work of rough cuts, and the most additions of an op to a stretch there


class Kinds(NamedTuple):
    """The kinds of devices; alike devices are of one kind. The number of a set of devices is made of the count of each
    kind, in mixed radix.
    """

    device: Ints  # [kinds] one device of the kind
    size: Ints  # [kinds] the number of devices of the kind
    weight: Ints  # [kinds] how much one more device of the kind adds to the number of a set


class Line(NamedTuple):
    """Blocks of units in line, most often of one unit each. i: place, d: device."""

    first_op: Ints  # [i + 1] the ops of the block at i are op[first_op[i]] to op[first_op[i + 1]]
    op: Ints
    cost_s: Floats  # [i, d]
    unit_bytes: Floats  # [i]
    capacity_bytes: Floats  # [d]


class Cuts(NamedTuple):
    """The best cut of the first i blocks over each set of devices."""

    largest_s: Floats  # [i, sets] the largest load; infinite if there is no cut
    begin: Ints  # [i, sets] where the last stretch begins
    kind: Ints  # [i, sets] the kind of device of the last stretch


def contiguous_placements(problem: Problem) -> Iterator[Placement]:
    """Yield the best cut of each of the `lines` of units; nothing if there are too many sets of devices or units, or no
    cut fits.
    """
    if _work(problem) <= MOST_WORK:
        yield from _cuts(problem, len(problem.units))


def is_quick(problem: Problem) -> bool:
    """Whether the best cuts are found in a fraction of a second."""
    return _work(problem) <= QUICK_WORK


def rough_placements(problem: Problem) -> Iterator[Placement]:
    """Yield the best cuts between blocks of neighbouring units. The blocks cost about the same. Such cuts are found
    quickly even if cuts between units are not. Nothing if blocks of several units would be fewer than 2 per device.
    """
    sets, ops = _sets(problem), len(problem.graph)
    places = min(len(problem.units), math.isqrt(ROUGH_WORK // sets), ROUGH_WORK // ops)
    if places >= 2 * len(problem.topology) or places == len(problem.units):
        yield from _cuts(problem, places)


def _sets(problem: Problem) -> int:
    return int(np.prod(kinds_of(problem).size + 1, dtype=np.float64))


def _work(problem: Problem) -> int:
    return _sets(problem) * len(problem.units) ** 2


def _cuts(problem: Problem, places: int) -> Iterator[Placement]:
    """Yield the best cut of each line, between `places` blocks."""
    kinds = kinds_of(problem)
    if _sets(problem) <= MOST_SETS:
        for line in lines(problem):
            found = cut(problem, line, kinds, places)
            if found is not None:
                yield found


def cut(problem: Problem, line: Ints, kinds: Kinds, places: int | None = None) -> Placement | None:
    """Return the best cut of `line`, [units] in order; None if no cut fits into memory. places: cut only between about
    this many blocks of about equal cost; None = between any units.
    """
    limits, ops = problem.limits, [problem.units[u] for u in line.tolist()]
    first = _first_of_blocks(np.array(problem.unit_mean_s)[line], places)
    row = Line(
        np.cumsum([0, *map(len, ops)]).astype(np.int32)[[*first, -1]],
        np.array([v for unit in ops for v in unit], np.int32),
        np.add.reduceat(np.array(problem.unit_cost_s)[line], first),
        np.add.reduceat(limits.unit_bytes[line], first),
        limits.capacity_bytes,
    )
    borders = [*first.tolist(), len(line)]
    cuts = cut_line(problem.max_load.ends, row, kinds)
    best = int(cuts.largest_s[-1].argmin())
    if not cuts.largest_s[-1, best] < np.inf:
        return None
    placement, end = np.empty(len(line), np.int32), len(first)
    free = [[d for d in range(len(problem.alike)) if problem.alike[d] == first] for first in kinds.device]
    while end > 0:
        begin, kind = int(cuts.begin[end, best]), int(cuts.kind[end, best])
        placement[line[borders[begin] : borders[end]]] = free[kind].pop()
        end, best = begin, best - int(kinds.weight[kind])
    return tuple(placement.tolist())


def _first_of_blocks(mean_s: Floats, places: int | None) -> NDArray[np.int64]:
    """Return where in line each block begins. mean_s: the mean cost of each unit in line."""
    if places is None or places >= len(mean_s):
        return np.arange(len(mean_s))
    weight = mean_s if mean_s.any() else np.ones(len(mean_s))
    block = np.floor((np.cumsum(weight) - weight) / weight.sum() * places)
    return np.flatnonzero(np.diff(block, prepend=-1.0))


@jit
def cut_line(ends: Ends, line: Line, kinds: Kinds) -> Cuts:
    """Find all best cuts, from the left: each stretch from j on grows block by block, and its load with it."""
    units, sets = len(line.cost_s), 1
    for kind in range(len(kinds.size)):
        sets *= kinds.size[kind] + 1
    cuts = Cuts(
        np.full((units + 1, sets), np.inf), np.empty((units + 1, sets), np.int32), np.empty((units + 1, sets), np.int32)
    )
    cuts.largest_s[0, 0] = 0.0
    users, made = np.empty(len(ends.maker), np.int32), np.empty(len(ends.maker), np.bool_)
    open_sets = np.empty(sets, np.int32)
    for j in range(units):
        for kind in range(len(kinds.size)):
            open_ = 0
            for i in range(sets):
                has = i // kinds.weight[kind] % (kinds.size[kind] + 1)
                if has < kinds.size[kind] and cuts.largest_s[j, i] < np.inf:
                    open_sets[open_] = i
                    open_ += 1
            if open_ == 0:
                continue
            d = kinds.device[kind]
            users[:], made[:] = 0, False
            load_s, held_bytes = 0.0, 0.0
            for end in range(j, units):
                held_bytes += line.unit_bytes[end]
                if line.cost_s[end, d] == np.inf or held_bytes > line.capacity_bytes[d]:
                    break
                for at in range(line.first_op[end], line.first_op[end + 1]):
                    load_s += _joins(ends, users, made, line.op[at], d)
                for i in range(open_):
                    before = open_sets[i]
                    after = before + kinds.weight[kind]
                    largest_s = max(cuts.largest_s[j, before], load_s)
                    if largest_s < cuts.largest_s[end + 1, after]:
                        cuts.largest_s[end + 1, after] = largest_s
                        cuts.begin[end + 1, after], cuts.kind[end + 1, after] = j, kind
    return cuts


@inlined
def _joins(e: Ends, users: Ints, made: NDArray[np.bool_], v: int, d: int) -> float:
    """Add op v to a stretch on device d; return the seconds by which its load grows.

    users: [tensors], how many users are in the stretch. made: [tensors], whether the stretch makes the tensor.
    """
    more_s = e.cost_s[v, d]
    for k in range(e.first_made[v], e.first_made[v + 1]):
        made[k] = True
        if users[k] > 0:
            more_s -= e.receive_s[k, d]
        if users[k] < e.start[k + 1] - e.start[k]:
            more_s += e.send_s[k, d]
    for i in range(e.first_used[v], e.first_used[v + 1]):
        k = e.used[i]
        users[k] += 1
        if not made[k]:
            more_s += e.receive_s[k, d] if users[k] == 1 else 0.0
        elif users[k] == e.start[k + 1] - e.start[k]:
            more_s -= e.send_s[k, d]
    return more_s  # type: ignore[no-any-return]


def kinds_of(problem: Problem) -> Kinds:
    """Return the kinds of devices of a problem."""
    device = sorted(set(problem.alike))
    count = [problem.alike.count(d) for d in device]
    weight = np.cumprod([1, *(n + 1 for n in count[:-1])])
    return Kinds(np.array(device, np.int32), np.array(count, np.int32), weight.astype(np.int32))
