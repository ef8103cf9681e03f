"""CPOP: the critical path to the one device that runs it fastest, every other op to where it would finish first."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from search.list_scheduling.list_scheduler import OneMapping, Schedule, earliest_finish, repaired
from search.problem.problem import Placement, Problem
from surrogate.costs.cost_matrix import mean_cost_s
from surrogate.simulate.priority import positions, topological, upward_rank

# Ranks are sums of floats taken in two directions: as near as this they are the same.
SAME = 1e-9


class Cpop(OneMapping):
    """Asks the one mapping that CPOP gives."""

    name: ClassVar[str] = "cpop"

    def _schedule(self) -> Schedule:
        return cpop(self.problem)


def cpop_placement(problem: Problem) -> Placement:
    """CPOP's mapping, repaired where memory ran out. Raises BadInputError where nothing fits."""
    return repaired(problem, cpop(problem))


def cpop(problem: Problem) -> Schedule:
    """Schedule `problem.graph` by CPOP (Topcuoglu, Hariri, Wu 2002), insertion-based.

    Of the ops whose producers all have a place the one with the highest sum of upward and downward rank is next. Ops on
    the critical path go to the critical-path device where they can run there; what is colocated follows, as in
    `earliest_finish`. Departures: see there.
    """
    priority = path_s(problem)
    path = critical_path(problem, priority)
    ahead_s = np.zeros(problem.costs.shape)
    ahead_s[path] = np.inf
    ahead_s[path, critical_device(problem, path)] = 0.0
    return earliest_finish(problem, topological(problem.graph, positions(priority)), ahead_s)


def path_s(problem: Problem) -> NDArray[np.float64]:
    """[ops] seconds of the heaviest path through each op, costs averaged: its upward and its downward rank."""
    upward = upward_rank(problem.graph, problem.costs, problem.topology)
    return np.array(upward) + downward_rank(problem)


def downward_rank(problem: Problem) -> NDArray[np.float64]:
    """[ops] seconds of the heaviest path to each op, its own cost left out.

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
    """Op indices from an entry to an exit along one path of the highest priority."""
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
    """The device that runs the ops of `path` in the least time; what it cannot run counts at its dearest."""
    cost_s = problem.costs[path]
    dearest_s = np.where(np.isfinite(cost_s), cost_s, 0.0).max(axis=1, keepdims=True)
    may = problem.limits.feasible[problem.limits.unit_of[path]]
    return int(np.where(may, cost_s, dearest_s).sum(axis=0).argmin())
