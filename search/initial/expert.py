"""The splits that an expert would draw: layers in runs of equal work, and parallel branches side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from search.problem.memory_fit import fitted
from search.problem.problem import Placement, Problem

CHEAP_SHARE = 0.02  # of all work: a lighter unit with three neighbours or more is a fork or a join, not a branch
TOWER_SHARE = 0.3  # of the heaviest branch: where the second is lighter, the branches are no towers


def expert_placements(problem: Problem) -> list[Placement]:
    """All splits, no duplicates, made to fit into memory. Raises BadInputError where nothing fits."""
    variants = [*_layer_splits(problem), *_branch_splits(problem)]
    return list(dict.fromkeys(fitted(problem, _feasible(problem, variant)) for variant in variants))


def _layer_splits(problem: Problem) -> Iterator[list[int]]:
    """Runs of about equal work in topological order, over all devices and over fewer, in each rotation."""
    devices = problem.fastest_first
    for parts in range(len(devices), 1, -1):
        for turn in range(parts):
            used = devices[:parts]
            yield _contiguous(problem, used[turn:] + used[:turn])


def _contiguous(problem: Problem, line: Sequence[int]) -> list[int]:
    """The first run of units on line[0], the next on line[1], and so on; each device gets work by its speed."""
    weight = problem.unit_mean_s
    speed = [1 / max(problem.device_total_s[d], 1e-30) for d in line]
    ends = [sum(speed[: i + 1]) / sum(speed) * sum(weight) for i in range(len(line))]
    split, part, done_s = [], 0, 0.0
    for w in weight:
        while part < len(line) - 1 and done_s + w / 2 > ends[part]:
            part += 1
        split.append(line[part])
        done_s += w
    return split


def _branch_splits(problem: Problem) -> Iterator[list[int]]:
    """Parallel branches over the devices, the heaviest first to where least is done (LPT), rotated."""
    weight = problem.unit_mean_s
    near = _neighbours(problem)
    branches = _branches(problem, near)
    heavy = sorted((sum(weight[u] for u in branch) for branch in branches), reverse=True)
    if len(heavy) < 2 or heavy[1] < TOWER_SHARE * heavy[0]:
        return
    devices = problem.fastest_first
    for turn in range(len(devices)):
        yield _spread(problem, near, branches, devices[turn:] + devices[:turn])


def _branches(problem: Problem, near: Sequence[set[int]]) -> list[list[int]]:
    """The connected parts that are left without the cheap forks and joins, as lists of units."""
    weight = problem.unit_mean_s
    cheap_s = CHEAP_SHARE * sum(weight)
    kept = {u for u in range(len(weight)) if len(near[u]) < 3 or weight[u] > cheap_s}
    branches = []
    while kept:
        branch, front = [], [min(kept)]
        kept.discard(front[0])
        while front:
            u = front.pop()
            branch.append(u)
            new = sorted(near[u] & kept)
            kept.difference_update(new)
            front.extend(new)
        branches.append(sorted(branch))
    return branches


def _spread(
    problem: Problem, near: Sequence[set[int]], branches: Sequence[Sequence[int]], devices: Sequence[int]
) -> list[int]:
    """Branches by LPT over `devices`, the first device in a tie; then forks and joins, each with a neighbour."""
    cost_s = problem.unit_cost_s
    load_s = dict.fromkeys(devices, 0.0)
    placed: dict[int, int] = {}
    weight = problem.unit_mean_s
    for branch in sorted(branches, key=lambda branch: -sum(weight[u] for u in branch)):
        after_s = {d: load_s[d] + sum(cost_s[u][d] for u in branch) for d in devices}
        d = min(devices, key=lambda d: after_s[d])
        load_s[d] = after_s[d]
        placed.update(dict.fromkeys(branch, d))
    for u in range(len(cost_s)):
        if u not in placed:
            around = [placed[w] for w in sorted(near[u]) if w in placed]
            placed[u] = max(around, key=around.count) if around else devices[0]
    return [placed[u] for u in range(len(cost_s))]


def _neighbours(problem: Problem) -> list[set[int]]:
    """For each unit the units it exchanges tensors with."""
    near: list[set[int]] = [set() for _ in problem.units]
    for e in problem.graph.edges:
        u, w = problem.unit_of[e.src], problem.unit_of[e.dst]
        if u != w:
            near[u].add(w)
            near[w].add(u)
    return near


def _feasible(problem: Problem, placement: Sequence[int]) -> list[int]:
    """`placement`, with units that cannot run where they were put moved to where they cost least."""
    return [
        d if d in devices else min(devices, key=lambda f: problem.unit_cost_s[u][f])
        for u, (d, devices) in enumerate(zip(placement, problem.feasible, strict=True))
    ]
