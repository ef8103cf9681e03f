"""Orders of units in which neighbours belong together, so that a stretch of such an order is worth moving."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placer.graph.units import SCALAR_BYTES
from search.problem.problem import Problem


def lines(problem: Problem) -> NDArray[np.int32]:
    """Return three orders of units, [3, units]: topological; depth first, so that branches stay together; and folded,
    so that gradients are beside the ops that they belong to.
    """
    return np.array([np.arange(len(problem.units)), _depth_first(problem), _folded(problem)], np.int32)


def _depth_first(problem: Problem) -> list[int]:
    """Sort units by their first op in an order of ops that continues with a consumer of the last op if it can."""
    graph = problem.graph
    waits = [0] * len(graph)
    users: list[list[int]] = [[] for _ in graph.ops]
    for e in graph.edges:
        users[e.src].append(e.dst)
        waits[e.dst] += 1
    stack = [v for v in reversed(graph.order) if waits[v] == 0]
    line: dict[int, None] = {}
    while stack:
        v = stack.pop()
        line[problem.unit_of[v]] = None
        for user in users[v]:
            waits[user] -= 1
            if waits[user] == 0:
                stack.append(user)
    return list(line)


def _folded(problem: Problem) -> NDArray[np.int64]:
    """Sort units by the number of tensors between each and the first unit, forwards or backwards. A gradient is one
    tensor away from the op that it belongs to. Scalars do not count, because they reach all units.
    """
    near: list[set[int]] = [set() for _ in problem.units]
    for e, (u, w) in zip(problem.graph.edges, problem.unit_ends.tolist(), strict=True):
        if u != w and e.edge_bytes > SCALAR_BYTES:
            near[u].add(w)
            near[w].add(u)
    steps = np.full(len(near), len(near))
    for first in range(len(near)):  # in topological order, so that each component is reached from its first unit
        front = [first] if steps[first] == len(near) else []
        steps[front] = 0
        while front:
            new = sorted({w for u in front for w in near[u] if steps[w] == len(near)})
            steps[new] = steps[front[0]] + 1
            front = new
    return np.argsort(steps, kind="stable")
