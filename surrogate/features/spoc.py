"""SPOC of a graph: its Size, Parameters, Operations and Critical datapath length.

Langerman (2022) explains run times of networks by metrics of these four names. The formulas of that work could not be
read, so the definitions here are our own:

- Size: ops, distinct tensors, and the bytes that the ops read and write.
- Parameters: elements of the variables that the forward part uses, trained or not; no optimizer slots.
- Operations: floating-point operations from static shapes (placer/trace/op_counts), multiply-adds among them. Dense
  multiply-adds count grouped convolutions as whole ones, as a CPU computes them if XLA compiles them.
- Critical datapath length: the longest chain of ops that depend on one another, in four weightings. `hops`: every op
  counts 1. `span`: every op counts its own sequential depth. This is the span, or depth, of work-span analysis
  (Blelloch 1996): the levels of scalar operations that are left with unlimited processors. `chain_operations`: the most
  FLOPs on any chain. `chain_s`: if ops have costs, the seconds of the chain that takes longest, with every op on its
  fastest device and free crossings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placer.graph.op_graph import OpGraph

Floats = NDArray[np.float64]

VARIABLE = ("VarHandleOp", "ReadVariableOp")


class Chain(NamedTuple):
    """A longest chain: the sum of its ops' weights, and the ops from first to last."""

    length: float
    ops: tuple[int, ...]


@dataclass(frozen=True)
class Spoc:
    """SPOC of one graph. A number that the graph does not tell is None."""

    name: str
    ops: int
    tensors: int
    tensor_bytes: int  # of distinct tensors between ops
    traffic_bytes: int  # read and written by ops that compute; without the writing of constants and the step's inputs
    parameters: int | None  # elements
    held_bytes: int  # of variables, optimizer slots included
    operations: float | None  # FLOPs
    multiply_adds: float | None  # pairs of one multiplication and one addition, in convolutions and matrix products
    dense_multiply_adds: float | None  # the same, with compiled grouped convolutions as whole ones
    uncounted: int  # ops of unknown operations (loops), which make all counts lower bounds
    hops: int  # critical datapath length in four weightings, see above: `hops`, `span`, ...
    span: int | None
    chain_operations: float | None
    work_s: float | None  # seconds of all ops, each on its fastest device
    chain_s: float | None

    @property
    def parallelism(self) -> float | None:
        """The mean number of scalar operations that can be done at once: work divided by span."""
        return self.operations / self.span if self.operations and self.span else None

    @property
    def breadth(self) -> float | None:
        """The most devices that ops can keep busy if no op is split: all work divided by that of the heaviest chain.

        Work is in seconds if ops have costs, else in FLOPs (Brent 1974: no schedule ends before its longest chain).
        """
        if self.work_s and self.chain_s:
            return self.work_s / self.chain_s
        return self.operations / self.chain_operations if self.operations and self.chain_operations else None

    @property
    def narrowness(self) -> float:
        """The share of the ops that are on the chain with most hops; 1 = all ops form one chain."""
        return self.hops / self.ops

    @property
    def operations_per_op(self) -> float | None:
        return None if self.operations is None else self.operations / self.ops

    @property
    def intensity(self) -> float | None:
        """FLOPs per byte that is read or written."""
        return self.operations / self.traffic_bytes if self.operations and self.traffic_bytes else None

    @property
    def weight_share(self) -> float | None:
        """Bytes of variables, which do not grow with the batch, per byte that is read or written."""
        return self.held_bytes / self.traffic_bytes if self.traffic_bytes else None


def spoc(graph: OpGraph, parameters: int | None = None) -> Spoc:
    """Return SPOC of `graph`. parameters: the count of its variables' elements (an OpGraph knows only their bytes)."""
    flops, depths, seconds = operations(graph), depths_of(graph), fastest_s(graph)
    counted, sized = np.isfinite(flops), np.isfinite(depths)
    known = np.where(counted, flops, 0.0)
    timed = bool(np.isfinite(seconds).all())
    return Spoc(
        name=graph.name,
        ops=len(graph),
        tensors=sum(size > 0 for size in graph.tensor_bytes.values()),
        tensor_bytes=sum(graph.tensor_bytes.values()),
        traffic_bytes=traffic_bytes(graph),
        parameters=parameters,
        held_bytes=sum(op.memory_bytes for op in graph.ops),
        operations=float(known.sum()) if counted.any() else None,
        multiply_adds=sum(op.multiply_adds or 0.0 for op in graph.ops) if counted.any() else None,
        dense_multiply_adds=sum(op.dense_multiply_adds or 0.0 for op in graph.ops) if counted.any() else None,
        uncounted=int((~counted).sum()) if counted.any() else 0,
        hops=int(longest_chain(graph, np.ones(len(graph))).length),
        span=int(longest_chain(graph, np.where(sized, depths, 1.0)).length) if sized.any() else None,
        chain_operations=longest_chain(graph, known).length if counted.any() else None,
        work_s=float(seconds.sum()) if timed else None,
        chain_s=longest_chain(graph, seconds).length if timed else None,
    )


def longest_chain(graph: OpGraph, weights: Sequence[float] | Floats) -> Chain:
    """Return the chain of dependent ops with the largest sum of weights. weights: [ops], all >= 0."""
    until, before = [float(w) for w in weights], [-1] * len(graph)
    reached = [0.0] * len(graph)
    for v in graph.order:
        until[v] += reached[v]
        for e in graph.out_edges[v]:
            if until[v] > reached[e.dst] or before[e.dst] < 0:
                reached[e.dst], before[e.dst] = until[v], v
    last = max(range(len(graph)), key=until.__getitem__)
    ops = [last]
    while before[ops[-1]] >= 0:
        ops.append(before[ops[-1]])
    return Chain(until[last], tuple(reversed(ops)))


def operations(graph: OpGraph) -> Floats:
    """Return [ops] FLOPs, NaN where unknown."""
    return np.array([np.nan if op.flops is None else op.flops for op in graph.ops], np.float64)


def depths_of(graph: OpGraph) -> Floats:
    """Return [ops] sequential depths, NaN where unknown."""
    return np.array([np.nan if op.depth is None else op.depth for op in graph.ops], np.float64)


def fastest_s(graph: OpGraph) -> Floats:
    """Return [ops] seconds on the fastest device; NaN for an op without costs."""
    return np.array([min(op.cost_s.values(), default=np.nan) for op in graph.ops], np.float64)


def traffic_bytes(graph: OpGraph) -> int:
    """Return the bytes that ops read (a tensor once per reader) and write. Ops with 0 FLOPs do not count, because they
    pass tensors on unchanged.
    """
    computes = [op.flops != 0 for op in graph.ops]
    read = sum(e.edge_bytes for e in graph.edges if computes[e.dst])
    return read + sum(size for (src, _), size in graph.tensor_bytes.items() if computes[src])


def forward(graph: OpGraph) -> OpGraph | None:
    """Return the forward part of a training step's graph; None if no op has the phase "forward".

    Ops of that phase which only the update reads, such as momentum and learning rate, are left out. So is a variable
    that only backward ops and ops left out read, because TensorFlow multiplies some gradients by the learning rate
    early.
    """
    kept: set[int] = set()
    for v in reversed(graph.order):
        users = {e.dst for e in graph.out_edges[v]}
        backward = graph.ops[v].type not in VARIABLE and any(graph.ops[u].phase == "backward" for u in users)
        if graph.ops[v].phase == "forward" and (backward or not users or users & kept):
            kept.add(v)
    return part(graph, sorted(kept)) if kept else None


def part(graph: OpGraph, ops: Sequence[int]) -> OpGraph:
    """Return the graph of the ops `ops`, indices in ascending order, and of the edges between them."""
    place = {v: i for i, v in enumerate(ops)}
    edges = (e._replace(src=place[e.src], dst=place[e.dst]) for e in graph.edges if e.src in place and e.dst in place)
    return OpGraph(graph.name, tuple(graph.ops[v] for v in ops), tuple(edges), graph.source)
