"""The graph of one training step: ops (or groups of ops), what they cost, and the tensors between them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping as MappingABC
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError, first_twice, plain, short

if TYPE_CHECKING:
    from placer.graph.topology import Device

PHASES = ("forward", "backward", "update")


@dataclass(frozen=True, slots=True)
class Op:
    """One op, or one group of ops. Counts (placer/trace/op_counts/counts.py) are None if unknown."""

    name: str
    type: str = ""
    cost_s: MappingABC[str, float] = field(default_factory=dict)  # by device name or kind; a name wins over a kind
    memory_bytes: int = 0  # held on the op's device for the whole step (its variables)
    colocate: str | None = None  # ops with the same value must share a device
    devices: tuple[str, ...] | None = None  # names or kinds the op may run on; None = wherever it has a cost
    phase: str | None = None  # one of PHASES
    flops: float | None = None  # floating-point operations; a multiply-add counts two
    multiply_adds: float | None = None  # of convolutions and matrix products
    dense_multiply_adds: float | None = None  # the same, with groups that XLA compiles as whole convolutions
    depth: int | None = None  # how many scalar operations must run one after another
    part: int | None = None  # in a divided step, the index of the part that this op belongs to (placer/splits)
    part_of: str | None = None  # the divided op that this is a part of
    micro_batch: int | None = None  # the index of the micro-batch that this op works on, if there are several
    shapes: tuple[tuple[int | None, ...] | None, ...] = ()  # one per output; None for an unknown rank or dimension

    def runs_on(self, device: Device) -> bool:
        """Whether `device` may run this op: `devices` allows it, and it has a cost there if any cost is known."""
        allowed = self.devices is None or device.name in self.devices or device.kind in self.devices
        known = device.name in self.cost_s or device.kind in self.cost_s
        return allowed and (known or (not self.cost_s and self.devices is not None))

    def cost_on(self, device: Device) -> float:
        """Seconds on `device` (cost / speed); infinity if it cannot run there."""
        if not self.runs_on(device):
            return math.inf
        cost_s = self.cost_s.get(device.name, self.cost_s.get(device.kind, math.inf))
        return cost_s / device.speed


def total(counts: Sequence[float | None]) -> float | None:
    """The sum of counts of ops; None if one is unknown."""
    known = [count for count in counts if count is not None]
    return float(sum(known)) if len(known) == len(counts) else None


class Edge(NamedTuple):
    """Output `output_index` of op `src` is an input of op `dst`; src and dst are op indices."""

    src: int
    dst: int
    edge_bytes: int
    output_index: int = 0


class EdgeColumns(NamedTuple):
    """The fields of all edges, each an array, [edges]."""

    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    edge_bytes: NDArray[np.float64]
    output_index: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class OpGraph:
    """A directed acyclic graph of ops or of groups, validated when it is made.

    source: where the graph or its costs come from, in words. content: for a captured step, a hex digest of what its ops
    compute (placer/trace/graph_def/content.py); not in files. Raises BadInputError for duplicate names, edges to ops
    that do not exist, negative or NaN numbers, cycles.
    """

    name: str
    ops: tuple[Op, ...]
    edges: tuple[Edge, ...]
    source: str | None = None
    content: str | None = None

    def __post_init__(self) -> None:
        if not self.ops:
            raise BadInputError(f"graph {short(self.name)} has no ops; a graph needs at least one.")
        twice = first_twice([op.name for op in self.ops])
        if twice is not None:
            raise BadInputError(f"graph {short(self.name)}: two ops are called {short(twice)}; names must be unique.")
        for op in self.ops:
            _check_op(self.name, op)
        for edge in self.edges:
            self._check_edge(edge)
        if len(self.order) != len(self.ops):
            raise BadInputError(f"graph {short(self.name)} has a cycle: {self._cycle()}; remove one of its edges.")

    def __len__(self) -> int:
        return len(self.ops)

    @cached_property
    def index(self) -> dict[str, int]:
        """Op name -> position in `ops`."""
        return {op.name: i for i, op in enumerate(self.ops)}

    @cached_property
    def out_edges(self) -> tuple[tuple[Edge, ...], ...]:
        """For each op the edges that leave it, in file order."""
        return self._by_end("src")

    @cached_property
    def in_edges(self) -> tuple[tuple[Edge, ...], ...]:
        """For each op the edges that enter it, in file order."""
        return self._by_end("dst")

    @cached_property
    def edge_columns(self) -> EdgeColumns:
        """The edges as arrays, in file order."""
        count = len(Edge._fields) * len(self.edges)
        rows = np.fromiter(chain.from_iterable(self.edges), np.float64, count).reshape(-1, len(Edge._fields))
        src, dst, edge_bytes, output = rows.T
        return EdgeColumns(src.astype(np.int64), dst.astype(np.int64), edge_bytes.copy(), output.astype(np.int64))

    @cached_property
    def tensor_bytes(self) -> dict[tuple[int, int], int]:
        """(src, output_index) -> bytes; the largest if edges of one tensor disagree."""
        sizes: dict[tuple[int, int], int] = {}
        for e in self.edges:
            key = (e.src, e.output_index)
            sizes[key] = max(sizes.get(key, 0), e.edge_bytes)
        return sizes

    @cached_property
    def order(self) -> tuple[int, ...]:
        """A topological order of op indices; shorter than the graph if it has a cycle."""
        waiting = [len({e.src for e in into}) for into in self.in_edges]
        ready = sorted((i for i, n in enumerate(waiting) if n == 0), reverse=True)
        order: list[int] = []
        while ready:
            u = ready.pop()
            order.append(u)
            for v in sorted({e.dst for e in self.out_edges[u]}, reverse=True):
                waiting[v] -= 1
                if waiting[v] == 0:
                    ready.append(v)
        return tuple(order)

    def ordered_like(self, names: Sequence[str]) -> list[str]:
        """The names of all ops in a topological order that follows `names`, which orders some of them, as far as
        dependencies allow.
        """
        rank = {name: i for i, name in enumerate(names)}
        return [self.ops[v].name for v in self.order_by([rank.get(op.name, len(rank)) for op in self.ops])]

    def order_by(self, key: Sequence[int]) -> list[int]:
        """Op indices in topological order; among the ready ops, the one with the smallest key comes first.

        key: one per op; ties by index.
        """
        waiting = [len({e.src for e in into}) for into in self.in_edges]
        ready = [(key[v], v) for v, n in enumerate(waiting) if n == 0]
        heapify(ready)
        order = []
        while ready:
            u = heappop(ready)[1]
            order.append(u)
            for v in {e.dst for e in self.out_edges[u]}:
                waiting[v] -= 1
                if waiting[v] == 0:
                    heappush(ready, (key[v], v))
        return order

    @cached_property
    def colocated(self) -> tuple[tuple[int, ...], ...]:
        """The units a search moves: op indices that share a device, each op in exactly one unit."""
        units: dict[str | int, list[int]] = {}
        for i, op in enumerate(self.ops):
            units.setdefault(i if op.colocate is None else op.colocate, []).append(i)
        return tuple(tuple(unit) for unit in units.values())

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hex digits over names, types and edges, but not costs, so that profiling does not change it."""
        digest = hashlib.sha256()
        for op in self.ops:
            digest.update(f"{op.name}\0{op.type}\0".encode())
        for e in self.edges:
            digest.update(f"{e.src} {e.dst} {e.edge_bytes} {e.output_index}\0".encode())
        return digest.hexdigest()[:16]

    def _by_end(self, end: str) -> tuple[tuple[Edge, ...], ...]:
        by_op: list[list[Edge]] = [[] for _ in self.ops]
        for edge in self.edges:
            by_op[getattr(edge, end)].append(edge)
        return tuple(tuple(edges) for edges in by_op)

    def _check_edge(self, e: Edge) -> None:
        n = len(self.ops)
        if not (0 <= e.src < n and 0 <= e.dst < n):
            raise BadInputError(f"graph {short(self.name)}: edge {tuple(e)} names an op outside 0..{n - 1}.")
        if e.src == e.dst:
            raise BadInputError(f"graph {short(self.name)} has a cycle: {short(self.ops[e.src].name)} feeds itself.")
        if not e.edge_bytes >= 0 or math.isinf(e.edge_bytes) or e.output_index < 0:
            where = f"edge {short(self.ops[e.src].name)} -> {short(self.ops[e.dst].name)}"
            raise BadInputError(f"graph {short(self.name)}: {where} has {e.edge_bytes} bytes; give a number >= 0.")

    def _cycle(self) -> str:
        """The names along one cycle, for the error line."""
        left = set(range(len(self.ops))) - set(self.order)
        path = [min(left)]
        place = {path[0]: 0}
        while True:  # every op left waits for another op left, so walking back must close a loop
            before = next(e.src for e in self.in_edges[path[-1]] if e.src in left)
            if before in place:
                loop = [before, *reversed(path[place[before] :])]
                return " -> ".join(plain(self.ops[i].name) for i in loop[:8]) + (" ..." if len(loop) > 8 else "")
            place[before] = len(path)
            path.append(before)


def _check_op(graph_name: str, op: Op) -> None:
    where = f"graph {short(graph_name)}, op {short(op.name)}"
    if not op.name:
        raise BadInputError(f"graph {short(graph_name)}: an op has an empty name; name it.")
    for device, cost_s in op.cost_s.items():
        if not 0 <= cost_s < math.inf:
            raise BadInputError(f"{where}: cost on {short(device)} is {cost_s}; give seconds >= 0.")
    if not 0 <= op.memory_bytes < math.inf:
        raise BadInputError(f"{where}: memory_bytes is {op.memory_bytes}; give a number >= 0.")
    if not op.cost_s and not op.devices:
        raise BadInputError(f"{where}: no device can run it; give it a cost_s.")
    if op.phase is not None and op.phase not in PHASES:
        raise BadInputError(f"{where}: phase {short(op.phase)} is none of {', '.join(PHASES)}.")
