"""The order in which a free device takes the ops that could run: upward rank, or weighted out-degree.

If a step takes its examples in micro-batches, the earliest micro-batch comes before the rank. If memory is tight, ops
that free memory come before both.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from placer.graph.held_memory import own_bytes
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from surrogate.costs.cost_matrix import Costs, mean_cost_s

SMALL_BYTES = 1 << 16  # tensors up to this size, such as a learning rate, may be made early whatever the memory


def upward_rank(graph: OpGraph, costs: Costs, topology: Topology) -> list[float]:
    """Seconds from the start of each op to the end of the step along its heaviest path, costs averaged.

    Topcuoglu, Hariri, Wu 2002, eq. 8: rank_u(v) = w(v) + max over consumers u of (c(v, u) + rank_u(u)), with w the mean
    cost over the devices that can run v, and c the transfer over `Topology.mean_link`.
    """
    rank: list[float] = mean_cost_s(costs).tolist()
    if not graph.edges:
        return rank
    start, producers, edge_bytes = _by_consumer(graph)
    link = topology.mean_link
    after_s = (link.latency_s + edge_bytes / link.bandwidth_bytes_per_s).tolist()
    heaviest_s = [0.0] * len(graph)
    for v in reversed(graph.order):
        rank[v] += heaviest_s[v]
        for k in range(start[v], start[v + 1]):
            way_s = after_s[k] + rank[v]
            if way_s > heaviest_s[producers[k]]:
                heaviest_s[producers[k]] = way_s
    return rank


@lru_cache(maxsize=8)
def _by_consumer(graph: OpGraph) -> tuple[list[int], list[int], NDArray[np.float64]]:
    """Return the in-edges of all ops, sorted by consumer: where each op's edges begin, their producers and their bytes.

    Cached because calibration ranks one graph under many costs.
    """
    src, dst, edge_bytes, _ = graph.edge_columns
    by_dst = np.argsort(dst, kind="stable")
    start = np.searchsorted(dst[by_dst], np.arange(len(graph) + 1)).tolist()
    return start, src[by_dst].tolist(), edge_bytes[by_dst]


def weighted_out_degree(graph: OpGraph) -> list[float]:
    """WOD(v) = sum over v's distinct successors of 1 / in-degree (distinct predecessors): Li 2024, Donf."""
    n = len(graph)
    pairs = np.unique(graph.edge_columns.src * n + graph.edge_columns.dst)
    src, dst = pairs // n, pairs % n
    in_degree = np.bincount(dst, minlength=n)
    # bincount adds in the order of the pairs, by successor: sums of floats depend on their order.
    return np.bincount(src, weights=1 / in_degree[dst], minlength=n).tolist()  # type: ignore[no-any-return]


@lru_cache(maxsize=8)
def micro_batch_of(graph: OpGraph) -> NDArray[np.int32] | None:
    """Return the micro-batch that each op works on, or helps to begin. All other ops get a number after the last one.
    None if there are no micro-batches.

    A device that takes the earliest micro-batch first goes backward as soon as it can, so that few micro-batches are
    under way, as in one forward, one backward (Narayanan et al. 2021). Rank alone takes all forward passes first.
    """
    known = [op.micro_batch for op in graph.ops if op.micro_batch is not None]
    if not known:
        return None
    turn = np.full(len(graph), max(known) + 1, np.int32)
    for v in reversed(graph.order):
        own = graph.ops[v].micro_batch
        turn[v] = min((turn[e.dst] for e in graph.out_edges[v]), default=turn[v]) if own is None else own
    return turn


@lru_cache(maxsize=8)
def freeing(graph: OpGraph) -> NDArray[np.bool_]:
    """Return which ops lead to memory being freed, [ops]: updates by a gradient, ops that make fewer bytes than they
    read as the only reader, and small ops that only such ops wait for. By rank alone, updates come last, which would
    keep all gradients until the end of the step.
    """
    net_bytes = _net_bytes(graph)
    found = net_bytes < 0
    after_gradients = [op.phase == "backward" for op in graph.ops]
    for v in graph.order:
        if graph.ops[v].phase == "update" and any(after_gradients[e.src] for e in graph.in_edges[v]):
            after_gradients[v] = found[v] = True
    for v in reversed(graph.order):  # small ops that these wait for beside gradients, such as the learning rate
        if net_bytes[v] <= SMALL_BYTES and not after_gradients[v] and graph.out_edges[v]:
            found[v] |= all(found[e.dst] for e in graph.out_edges[v])
    return found


def _net_bytes(graph: OpGraph) -> NDArray[np.float64]:
    """Return [ops] bytes that each op makes, minus the bytes of the tensors that only this op reads."""
    readers: dict[tuple[int, int], set[int]] = {}
    for e in graph.edges:
        readers.setdefault((e.src, e.output_index), set()).add(e.dst)
    net = np.zeros(len(graph))
    for (src, output), by in readers.items():
        size = own_bytes(graph.ops[src], graph.tensor_bytes[src, output])
        net[src] += size
        if len(by) == 1:
            net[min(by)] -= size
    return net


def positions(
    priority: ArrayLike, turn: NDArray[np.int32] | None = None, first: NDArray[np.bool_] | None = None
) -> NDArray[np.int32]:
    """Return each op's place in line: 0 for the highest priority, ties by op index.

    turn: a key that is compared before the priority, the lowest first. first: ops that come before all others.
    """
    keys = [-np.asarray(priority, dtype=np.float64), turn, None if first is None else ~first]
    line = np.lexsort([key for key in keys if key is not None])  # the last key is compared first; stable
    place = np.empty(len(line), np.int32)
    place[line] = np.arange(len(line), dtype=np.int32)
    return place


def by_earliest_start(graph: OpGraph, costs: Costs) -> NDArray[np.int32]:
    """Return op indices, producers first, sorted by the time when each op could start if ops ran at mean cost and no op
    waited for a device.
    """
    mean_s = mean_cost_s(costs).tolist()
    start_s = [0.0] * len(graph)
    for v in graph.order:
        end_s = start_s[v] + mean_s[v]
        for e in graph.out_edges[v]:
            start_s[e.dst] = max(start_s[e.dst], end_s)
    order = np.array(graph.order, np.int32)
    return order[np.argsort(np.array(start_s)[order], kind="stable")]


def topological(graph: OpGraph, place: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return op indices in topological order; among the ready ops, the first in line comes first."""
    return np.array(graph.order_by(place.tolist()), np.int32)
