"""Graph, topology, costs and schedule as flat arrays, in the one form that compiled code takes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placer.graph.op_graph import OpGraph
from placer.graph.topology import CONTENTIONS, Topology
from surrogate.costs.cost_matrix import Costs

# The first axis of `link`.
LATENCY, BANDWIDTH, SEND, SEND_PER_BYTE, RECEIVE, RECEIVE_PER_BYTE = range(6)
NO_CONTENTION, LINK_CONTENTION, PORT_CONTENTION = range(3)


class Needs(NamedTuple):
    """Which op needs which tensor: op `src[k]` makes `tensor[k]`, which op `dst[k]` needs. m needs of n ops.

    The tensors of op v are needed by needs start[v] to start[v + 1], in file order. An op that needs a tensor twice is
    listed once. Tensors are numbered by op, then by output index.
    """

    start: NDArray[np.int32]  # [n + 1]
    src: NDArray[np.int32]  # [m]
    dst: NDArray[np.int32]  # [m]
    tensor: NDArray[np.int32]  # [m]
    tensor_bytes: NDArray[np.float64]  # [m]
    inputs: NDArray[np.int32]  # [n] how many tensors an op needs
    first_input: NDArray[np.int32]  # [n + 1] op v needs by_dst[first_input[v]] to by_dst[first_input[v + 1]]
    by_dst: NDArray[np.int32]  # [m] needs sorted by consumer, those of one consumer in file order
    tensors: int


class Tables(NamedTuple):
    """All that a makespan depends on except the mapping. The first fields are those of `Needs`.

    link: [6, devices, devices], by the constants above. A missing link has infinite latency and bandwidth; staying on a
    device takes no time.
    place: each op's place in line (without meaning for fifo). op_at: the inverse of place. ends_work: whether any link
    makes its two devices work. tail_s: [n] at least this many seconds pass between the end of op v and the end of the
    step; 0 is always valid.
    """

    start: NDArray[np.int32]
    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    tensor: NDArray[np.int32]
    tensor_bytes: NDArray[np.float64]
    inputs: NDArray[np.int32]
    first_input: NDArray[np.int32]
    by_dst: NDArray[np.int32]
    tensors: int
    cost_s: Costs
    link: NDArray[np.float64]
    place: NDArray[np.int32]
    op_at: NDArray[np.int32]
    fifo: bool
    contention: int
    ends_work: bool
    tail_s: NDArray[np.float64]


def needs_of(graph: OpGraph) -> Needs:
    """Return the needs of `graph`."""
    n = len(graph)
    if not graph.edges:
        none, start = np.zeros(0, np.int32), np.zeros(n + 1, np.int32)
        return Needs(start, none, none, none, np.zeros(0), np.zeros(n, np.int32), start, none, 0)
    src, dst, edge_bytes, output = graph.edge_columns
    tensor, largest = _tensors(src, output, edge_bytes)
    _, first = np.unique(tensor * n + dst, return_index=True)
    by_file = np.sort(first)
    by_src = np.argsort(src[by_file], kind="stable")
    first = by_file[by_src]
    number = np.empty(len(first), np.int32)
    number[by_src] = np.arange(len(first), dtype=np.int32)
    by_dst = number[np.argsort(dst[by_file], kind="stable")]
    makers, users, made = (a[first].astype(np.int32) for a in (src, dst, tensor))
    start = np.searchsorted(makers, np.arange(n + 1)).astype(np.int32)
    inputs = np.bincount(users, minlength=n).astype(np.int32)
    first_input = np.concatenate([[0], np.cumsum(inputs)]).astype(np.int32)
    return Needs(start, makers, users, made, largest[made], inputs, first_input, by_dst, len(largest))


def _tensors(
    src: NDArray[np.int64], output: NDArray[np.int64], edge_bytes: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return each edge's tensor number, and each tensor's bytes: the largest if edges of one tensor disagree."""
    line = np.lexsort((output, src))
    new = np.ones(len(line), bool)
    new[1:] = (np.diff(src[line]) != 0) | (np.diff(output[line]) != 0)
    tensor = np.empty(len(line), np.int64)
    tensor[line] = np.cumsum(new) - 1
    return tensor, np.maximum.reduceat(edge_bytes[line], np.flatnonzero(new))


def links_of(topology: Topology) -> NDArray[np.float64]:
    """Return the links as an array, [6, devices, devices], by the constants above."""
    n = len(topology)
    link = np.zeros((6, n, n))
    link[LATENCY] = link[BANDWIDTH] = np.inf
    np.fill_diagonal(link[LATENCY], 0.0)
    for s, row in enumerate(topology.table):
        for d, way in enumerate(row):
            if way is not None:
                times = (way.latency_s, way.bandwidth_bytes_per_s, way.send_s, way.send_s_per_byte)
                link[:, s, d] = (*times, way.receive_s, way.receive_s_per_byte)
    return link


def tables_of(needs: Needs, costs: Costs, topology: Topology, place: NDArray[np.int32] | None) -> Tables:
    """Return the event loop's inputs. costs: [ops, devices] seconds. place: each op's place in line, None for fifo."""
    link = links_of(topology)
    line = np.arange(len(costs), dtype=np.int32) if place is None else place
    return Tables(
        *needs,
        cost_s=np.ascontiguousarray(costs, dtype=np.float64),
        link=link,
        place=line,
        op_at=np.argsort(line).astype(np.int32),
        fifo=place is None,
        contention=CONTENTIONS.index(topology.contention),
        ends_work=bool(link[SEND:].any()),
        tail_s=np.zeros(len(costs)),
    )
