"""CPOP: the critical path goes to the one device that runs it fastest, every other op to where it finishes first."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from search.list_scheduling.list_scheduler import OneMapping, Schedule, earliest_finish
from search.problem.problem import Problem
from surrogate.costs.cost_matrix import mean_cost_s
from surrogate.simulate.priority import positions, topological

# Ranks are sums of floats, taken in two directions. A smaller relative difference between ranks is rounding.
SAME = 1e-9


class Cpop(OneMapping):
    name: ClassVar[str] = "cpop"

    def _schedule(self) -> Schedule:
        return cpop(self.problem)


def cpop(problem: Problem) -> Schedule:
    """Schedule `problem.graph` by CPOP (Topcuoglu, Hariri, Wu 2002), insertion-based.

    Departures: ops on the critical path go to its device only if they can run there; see also `earliest_finish`.
    """
    priority = path_s(problem)  # rank_u + rank_d, eqs. 8 and 9
    path = critical_path(problem, priority)  # SET_CP
    ahead_s = np.zeros(problem.costs.shape)
    # The path goes to the critical-path processor, and every other op to the device of the least EFT, eq. 7.
    ahead_s[path] = np.inf
    ahead_s[path, critical_device(problem, path)] = 0.0
    # The ready op with the highest priority is next.
    return earliest_finish(problem, topological(problem.graph, positions(priority)), ahead_s)


def path_s(problem: Problem) -> NDArray[np.float64]:
    """Seconds of the heaviest path through each op, [ops], costs averaged: its upward rank plus its downward rank."""
    return np.array(problem.simulator.rank) + downward_rank(problem)


def downward_rank(problem: Problem) -> NDArray[np.float64]:
    """Seconds of the heaviest path to each op, [ops], without its own cost.

    Topcuoglu, Hariri, Wu 2002, eq. 9: rank_d(v) = max over producers u of (rank_d(u) + w(u) + c(u, v)), costs averaged
    as in `upward_rank`.
    """
    mean_s = mean_cost_s(problem.costs).tolist()
    link = problem.topology.mean_link
    rank_s = [0.0] * len(mean_s)
    for v in problem.graph.order:
        end_s = rank_s[v] + mean_s[v]
        for e in problem.graph.out_edges[v]:
            rank_s[e.dst] = max(rank_s[e.dst], end_s + link.transfer_s(e.edge_bytes))
    return np.array(rank_s)


def critical_path(problem: Problem, priority: NDArray[np.float64]) -> list[int]:
    """Return op indices from an entry to an exit along one path of the highest priority."""
    entries = [v for v, into in enumerate(problem.graph.in_edges) if not into]
    path = [max(entries, key=lambda v: (priority[v], -v))]
    highest = priority[path[0]] * (1 - SAME)
    while True:
        after = sorted({e.dst for e in problem.graph.out_edges[path[-1]]})
        on_it = next((v for v in after if priority[v] >= highest), None)
        if on_it is None:
            return path
        path.append(on_it)


def critical_device(problem: Problem, path: list[int]) -> int:
    """Return the device that runs `path` in the least time. An op that it cannot run counts with its highest cost."""
    cost_s = problem.costs[path]
    highest_s = np.where(np.isfinite(cost_s), cost_s, 0.0).max(axis=1, keepdims=True)
    may = problem.limits.feasible[problem.limits.unit_of[path]]
    return int(np.where(may, cost_s, highest_s).sum(axis=0).argmin())
