"""The order in which a free device takes the ops that could run: upward rank, or weighted out-degree."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import permutations

import numpy as np

from placer.graph import OpGraph
from placer.topology import Topology
from surrogate.costs import Costs

SCHEDULES = ("rank", "donf", "fifo")


def upward_rank(graph: OpGraph, costs: Costs, topology: Topology) -> list[float]:
    """Seconds from the start of each op to the end of the step along its heaviest path, costs averaged.

    rank(v) = mean cost over the devices that can run v + max over out-edges of (mean transfer +
    rank(consumer)): Topcuoglu, Hariri, Wu 2002, eq. 8. The mean transfer is over the ordered pairs of
    distinct devices.
    """
    pairs = permutations(range(len(topology)), 2)
    links = [link for s, d in pairs if (link := topology.table[s][d]) is not None]

    @cache
    def mean_transfer_s(tensor_bytes: float) -> float:
        return sum(link.transfer_s(tensor_bytes) for link in links) / len(links) if links else 0.0

    runs = np.isfinite(costs)
    mean_cost_s = (np.where(runs, costs, 0.0).sum(axis=1) / runs.sum(axis=1)).tolist()
    rank = [0.0] * len(graph)
    for v in reversed(graph.order):
        after = (mean_transfer_s(e.edge_bytes) + rank[e.dst] for e in graph.out_edges[v])
        rank[v] = mean_cost_s[v] + max(after, default=0.0)
    return rank


def weighted_out_degree(graph: OpGraph) -> list[float]:
    """WOD(v) = sum over v's distinct successors of 1 / in-degree (distinct predecessors): Li 2024, Donf."""
    in_degree = [len({e.src for e in into}) for into in graph.in_edges]
    # Sorted: a set of ints has no promised order, and sums of floats depend on theirs.
    return [sum(1 / in_degree[w] for w in sorted({e.dst for e in out})) for out in graph.out_edges]


def positions(priority: Sequence[float]) -> list[int]:
    """Each op's place in line: 0 for the highest priority, ties by op index."""
    line = sorted(range(len(priority)), key=lambda v: (-priority[v], v))
    place = [0] * len(line)
    for i, v in enumerate(line):
        place[v] = i
    return place
