"""The splits that an expert would draw: layers in runs of equal work, and parallel branches side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from search.problem.memory_fit import fitted
from search.problem.problem import Placement, Problem

CHEAP_SHARE = 0.02  # a unit with a smaller share of all work and three neighbours or more is a fork or a join
MANY = 8  # with more devices, not every count and every rotation is tried
NOWHERE = -1
TOWER_SHARE = 0.3  # if the second branch is lighter than this share of the heaviest, the branches are not towers


def expert_placements(problem: Problem) -> Iterator[Placement]:
    """Yield the splits without duplicates, made to fit into memory. Each is computed when the caller asks for it.

    Raises BadInputError if no placement fits.
    """
    seen: set[Placement] = set()
    for variant in chain(_layer_splits(problem), _branch_splits(problem)):
        placement = fitted(problem, problem.moved_where_able(variant))
        if placement not in seen:
            seen.add(placement)
            yield placement


def device_counts(devices: int) -> list[int]:
    """Return the numbers of fastest devices to try, starting with all. The number is halved down to MANY; from there
    every number down to two follows.
    """
    counts = []
    while devices > MANY:
        counts.append(devices)
        devices = max(devices // 2, MANY)
    return [*counts, *range(devices, 1, -1)]


def rotations(devices: int) -> range:
    """Return by how many places to rotate a line of devices: by every number, or by at most MANY evenly spaced ones."""
    return range(0, devices, -(-devices // MANY))


def _layer_splits(problem: Problem) -> Iterator[list[int]]:
    """Yield runs of about equal work in topological order, over all devices and over fewer, in each rotation."""
    devices = problem.fastest_first
    for parts in device_counts(len(devices)):
        used = devices[:parts]
        for turn in rotations(parts):
            yield _contiguous(problem, used[turn:] + used[:turn])


def _contiguous(problem: Problem, line: Sequence[int]) -> list[int]:
    """Put the first run of units on line[0], the next on line[1], and so on. Each device gets work by its speed."""
    weight = problem.unit_mean_s
    speed = [1 / max(problem.device_total_s[d], 1e-30) for d in line]
    ends = [sum(speed[: i + 1]) / sum(speed) * sum(weight) for i in range(len(line) - 1)]
    middle_s = np.cumsum([0.0, *weight])[:-1] + np.array(weight) / 2
    return [line[part] for part in np.searchsorted(ends, middle_s)]


def _branch_splits(problem: Problem) -> Iterator[list[int]]:
    """Yield parallel branches spread over the devices, in each rotation. The heaviest branch comes first, and each goes
    to the device with the least load (LPT).
    """
    weight = problem.unit_mean_s
    near = _neighbours(problem)
    branches = sorted(_branches(problem, near), key=lambda branch: -sum(weight[u] for u in branch))
    heavy = [sum(weight[u] for u in branch) for branch in branches[:2]]
    if len(heavy) < 2 or heavy[1] < TOWER_SHARE * heavy[0]:
        return
    cost_s = _finite(np.array(problem.unit_cost_s))
    branch_s = [cost_s[branch].sum(axis=0) for branch in branches]
    devices = problem.fastest_first
    for turn in rotations(len(devices)):
        line = np.array(devices[turn:] + devices[:turn])
        yield _spread(near, branches, [row[line] for row in branch_s], line)


def _finite(cost_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """[units, devices] seconds. What a device cannot run counts with its highest cost: such a unit leaves its branch
    later (`moved_where_able`), so that it keeps the branch from no device.
    """
    highest_s = np.where(np.isfinite(cost_s), cost_s, -np.inf).max(axis=1, keepdims=True)
    return np.where(np.isfinite(cost_s), cost_s, highest_s)


def _branches(problem: Problem, near: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the connected components, as lists of units, that remain without the cheap forks and joins."""
    weight = problem.unit_mean_s
    cheap_s = CHEAP_SHARE * sum(weight)
    kept = [len(near[u]) < 3 or weight[u] > cheap_s for u in range(len(weight))]
    branches = []
    for first in range(len(weight)):
        if not kept[first]:
            continue
        kept[first] = False
        branch = [first]
        for u in branch:  # which grows meanwhile
            for w in near[u]:
                if kept[w]:
                    kept[w] = False
                    branch.append(w)
        branches.append(sorted(branch))
    return branches


def _spread(
    near: Sequence[Sequence[int]],
    branches: Sequence[Sequence[int]],
    branch_s: Sequence[NDArray[np.float64]],
    line: NDArray[np.int64],
) -> list[int]:
    """Spread branches, the heaviest first, by LPT over a line of devices; the first device wins a tie. Then put each
    fork and join where most of its neighbours are. branch_s: [line] seconds of each branch.
    """
    load_s = np.zeros(len(line))
    placed = [NOWHERE] * len(near)
    for branch, cost_s in zip(branches, branch_s, strict=True):
        i = int((load_s + cost_s).argmin())
        load_s[i] += cost_s[i]
        device = int(line[i])
        for u in branch:
            placed[u] = device
    for u, others in enumerate(near):
        if placed[u] == NOWHERE:
            around = [placed[w] for w in others if placed[w] != NOWHERE]
            placed[u] = max(dict.fromkeys(around), key=around.count, default=int(line[0]))
    return placed


def _neighbours(problem: Problem) -> list[list[int]]:
    """Return for each unit the units with which it exchanges tensors, in ascending order."""
    units = len(problem.units)
    u, w = problem.unit_ends.T
    u, w = np.divmod(np.unique(np.concatenate([u * units + w, w * units + u])), units)
    u, w = u[u != w], w[u != w]
    start, near = np.searchsorted(u, np.arange(units + 1)).tolist(), w.tolist()
    return [near[start[i] : start[i + 1]] for i in range(units)]
