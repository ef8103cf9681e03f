"""Orders of units in which neighbours belong together, so that a stretch of one is a part worth moving."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placer.graph.coarsen import SCALAR_BYTES
from search.problem.problem import Problem


def lines(problem: Problem) -> NDArray[np.int32]:
    """[3, units]: as they come, in topological order; depth first, so that branches stay together; and folded, so that
    gradients come beside what they are gradients of.
    """
    return np.array([np.arange(len(problem.units)), _depth_first(problem), _folded(problem)], np.int32)


def _depth_first(problem: Problem) -> list[int]:
    """By their first op in an order that goes on with a consumer of the last op where it can."""
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
    """By how many tensors are between a unit and the first op, forwards or backwards: a gradient is one from what it is
    the gradient of. Scalars, which reach everything, do not count.
    """
    near: list[set[int]] = [set() for _ in problem.units]
    for e in problem.graph.edges:
        u, w = problem.unit_of[e.src], problem.unit_of[e.dst]
        if u != w and e.edge_bytes > SCALAR_BYTES:
            near[u].add(w)
            near[w].add(u)
    steps = np.full(len(near), len(near))
    for first in range(len(near)):  # as they come, so that what is connected is reached from its first unit
        front = [first] if steps[first] == len(near) else []
        steps[front] = 0
        while front:
            new = sorted({w for u in front for w in near[u] if steps[w] == len(near)})
            steps[new] = steps[front[0]] + 1
            front = new
    return np.argsort(steps, kind="stable")
