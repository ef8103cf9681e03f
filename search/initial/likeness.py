"""The likeness of two steps, and the matching of ops and devices between them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from search.problem.problem import Problem

Ops = tuple[int, ...]
"""For each op of one shape the op of another shape that matches it."""


@dataclass(frozen=True)
class Shape:
    """The facts of a problem that are needed to carry its placements to another; ops are in a topological order."""

    fingerprint: str  # the graph's
    names: tuple[str, ...]  # of the ops
    types: tuple[str, ...]
    units: tuple[int, ...]  # the unit of each op
    work: tuple[float, ...]  # each op's share of the step's work, by its mean cost over devices
    edges: tuple[tuple[int, int], ...]  # pairs of places in this order
    devices: tuple[tuple[str, str, float], ...]  # name, kind, seconds that the whole step takes there

    @classmethod
    def of(cls, problem: Problem) -> Shape:
        """Return the shape of a problem."""
        graph, order = problem.graph, problem.graph.order
        place = {v: i for i, v in enumerate(order)}
        each_s = [sum(row) / len(row) for row in ([c for c in cost_s if c < float("inf")] for cost_s in problem.costs)]
        total_s = sum(each_s) or 1.0
        pairs = {(place[e.src], place[e.dst]) for e in graph.edges}
        devices = zip(problem.topology.devices, problem.device_total_s, strict=True)
        return cls(
            graph.fingerprint,
            tuple(graph.ops[v].name for v in order),
            tuple(graph.ops[v].type for v in order),
            tuple(problem.unit_of[v] for v in order),
            tuple(float(each_s[v] / total_s) for v in order),
            tuple(sorted(pairs)),
            tuple((device.name, device.kind, seconds) for device, seconds in devices),
        )

    @cached_property
    def labels(self) -> tuple[Hashable, ...]:
        """Return the type of each op with the types of its producers and consumers; None for an op without a type.
        This is one round of relabelling by Weisfeiler and Lehman.
        """
        before: list[list[str]] = [[] for _ in self.names]
        after: list[list[str]] = [[] for _ in self.names]
        for src, dst in self.edges:
            before[dst].append(self.types[src])
            after[src].append(self.types[dst])
        ends = zip(self.types, before, after, strict=True)
        return tuple((kind, tuple(sorted(b)), tuple(sorted(a))) if kind else None for kind, b, a in ends)

    @cached_property
    def middles(self) -> tuple[float, ...]:
        """The share of the step's work that is done, in this order, when half of each op is done."""
        return tuple(done - share / 2 for done, share in zip(accumulate(self.work), self.work, strict=True))

    @cached_property
    def named(self) -> frozenset[Hashable]:
        """Return ops and edges by name."""
        edges = ((self.names[src], self.names[dst]) for src, dst in self.edges)
        return frozenset((*zip(self.names, self.types, strict=True), *(("edge", *edge) for edge in edges)))


def likeness(one: Shape, other: Shape) -> float:
    """Return the likeness, from 0 to 1: the larger of two numbers. One is the share of ops and edges that both shapes
    have by name. The other is the overlap of the frequencies of labels in both, which does not change with the depth of
    a network made of the same blocks.

    The share by name is Dice's coefficient. The overlap is a histogram kernel on subtree patterns (Shervashidze et al.,
    Weisfeiler-Lehman Graph Kernels, JMLR 2011) after one round, with the minimum as the base kernel.
    """
    named = 2 * len(one.named & other.named) / (len(one.named) + len(other.named))
    mine, theirs = _frequencies(one), _frequencies(other)
    return max(named, sum(min(share, theirs.get(label, 0.0)) for label, share in mine.items()))


def by_name(source: Shape, target: Shape) -> Ops:
    """Match each target op with the source op of the same name and type, or else `by_place`."""
    known = {(name, kind): i for i, (name, kind) in enumerate(zip(source.names, source.types, strict=True))}
    places = by_place(source, target)
    keys = zip(target.names, target.types, strict=True)
    return tuple(known.get(key, place) for key, place in zip(keys, places, strict=True))


def by_place(source: Shape, target: Shape) -> Ops:
    """Match each target op with the source op at the nearest share of the work, among ops of the same label, else of
    the same type, else among all ops.
    """
    kinds: tuple[Callable[[Shape], Sequence[Hashable]], ...] = (
        lambda shape: shape.labels,
        lambda shape: shape.types,
        lambda shape: [None] * len(shape.names),
    )
    found: list[int | None] = [None] * len(target.names)
    for key in kinds:
        alike: dict[Hashable, list[int]] = {}
        for i, value in enumerate(key(source)):
            alike.setdefault(value, []).append(i)
        for v, value in enumerate(key(target)):
            if found[v] is None and value in alike:
                found[v] = _nearest(source.middles, alike[value], target.middles[v])
    return tuple(i for i in found if i is not None)


def devices_by_name(source: Shape, target: Shape) -> tuple[int, ...] | None:
    """Match each device of `source` with the target device of the same name and kind; None if one has no match."""
    index = {device[:2]: d for d, device in enumerate(target.devices)}
    found = [index.get(device[:2]) for device in source.devices]
    return None if None in found else tuple(d for d in found if d is not None)


def devices_by_speed(source: Shape, target: Shape) -> tuple[int, ...]:
    """Match each device of `source` with the target device of its kind with the same rank by speed. If `source` has
    more devices than `target`, neighbours in rank share a device. A kind that `target` lacks is ranked among all
    devices.
    """
    kinds = {kind for _, kind, _ in target.devices}
    found = [0] * len(source.devices)
    for kind in {kind for _, kind, _ in source.devices}:
        mine, theirs = (_ranked(shape, kind if kind in kinds else None) for shape in (source, target))
        for rank, d in enumerate(mine):
            found[d] = theirs[rank if len(mine) <= len(theirs) else rank * len(theirs) // len(mine)]
    return tuple(found)


def _frequencies(shape: Shape) -> dict[Hashable, float]:
    """Return label -> share of all ops that have it."""
    counts = Counter(label for label in shape.labels if label is not None)
    return {label: count / len(shape.names) for label, count in counts.items()}


def _ranked(shape: Shape, kind: str | None) -> list[int]:
    """Return the devices of a kind, or all devices if `kind` is None, the fastest first."""
    devices = [d for d, device in enumerate(shape.devices) if kind in (None, device[1])]
    return sorted(devices, key=lambda d: (shape.devices[d][2], d))


def _nearest(middles: Sequence[float], ops: Sequence[int], at: float) -> int:
    """Return the op of `ops`, which are in order, whose middle is nearest to `at`; in a tie the first."""
    i = bisect_left(ops, at, key=lambda op: middles[op])
    return min(ops[max(0, i - 1) : i + 1], key=lambda op: abs(middles[op] - at))
