"""Joins ops into groups: few enough to search, free of cycles, with related ops kept together.

Two levels are distinguished. A *unit* is a set of ops that must share a device: a variable with its reads, slots,
gradients and updates, and whatever is expensive to cut from them. Searches move units. A *group* is a set of ops that
runs in one piece: the ops of a unit between two visits to other units. So the forward and the backward ops of a layer
are two groups of one unit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from placer.graph.mapping import Mapping
from placer.graph.op_graph import Edge, Op, OpGraph, total
from placer.graph.topology import Topology
from placer.graph.units import Piece, Units, weight_s

SHRINK = 0.8  # factor on the target, each time splitting by depth gives too many groups


@dataclass(frozen=True)
class Groups:
    """A coarse graph, and for each of its groups (`members`) the indices of its ops in the fine graph."""

    fine: OpGraph
    graph: OpGraph
    members: tuple[tuple[int, ...], ...]

    @cached_property
    def group_of(self) -> tuple[int, ...]:
        """The group of each op of the fine graph."""
        of = [0] * len(self.fine)
        for group, members in enumerate(self.members):
            for op in members:
                of[op] = group
        return tuple(of)

    def expand(self, mapping: Mapping) -> tuple[int, ...]:
        """Device index of every op of the fine graph under a mapping of the groups."""
        return tuple([mapping.devices[group] for group in self.group_of])

    def expand_mapping(self, mapping: Mapping) -> Mapping:
        """The mapping of the fine graph that puts every op on the device of its group."""
        return Mapping(self.fine, mapping.topology, self.expand(mapping), mapping.headroom)


def coarsen(graph: OpGraph, groups: int, topology: Topology) -> Groups:
    """Join `graph`'s ops into at most about `groups` groups. There is at least one group per unit that must stay
    separate, and there are more groups if joining further would make units that leave a search no choice.

    topology: tells where each op can run, and how much memory a device has. Ops without a common device are not merged
    unless they are colocated, and a group runs where all its ops can.

    Units are merged by heavy-edge matching (Karypis & Kumar 1998, section 3.1): first the pairs whose cut is the most
    expensive relative to their compute, each unit at most once a round. If more units touch one unit than may be left
    (the branches of a wide fork), they unite with one another. Groups follow from units: op v is at depth
    max over its inputs u of depth(u) + [unit(u) != unit(v)], and ops with the same unit and depth form a group. Every
    edge between two groups leads to a greater depth, so no cycle can form. A group holds ops of one micro-batch only;
    a unit may hold ops of several. Raises BadInputError as Topology.check_names.
    """
    topology.check_names()
    units = Units(graph, topology)
    target = groups // 2
    while True:
        units.unite_to(target)
        members = _split_by_depth(graph, units)
        count = sum(not units.is_alone(group[0]) for group in members)
        if count <= groups or target <= 1:
            return _groups(graph, units, members, topology)
        target = int(min(target, units.count) * SHRINK)


def _split_by_depth(graph: OpGraph, units: Units) -> list[tuple[int, ...]]:
    """The members of each group, groups in topological order."""
    pieces = units.pieces()
    depth = [0] * len(graph)
    for v in graph.order:
        here = pieces[v]
        depth[v] = max((depth[e.src] + (pieces[e.src] != here) for e in graph.in_edges[v]), default=0)
    _sink(graph, pieces, depth)
    members: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for v, (unit, micro_batch) in enumerate(pieces):
        members[depth[v], unit, -1 if micro_batch is None else micro_batch].append(v)
    return [tuple(members[key]) for key in sorted(members)]


def _sink(graph: OpGraph, pieces: Sequence[Piece], depth: list[int]) -> None:
    """Move ops without inputs down to the first group of their unit that needs them, so that they form no own group.

    An op may go as deep as a consumer in the same piece, and one less deep than a consumer in another piece.
    """
    for v in reversed(graph.order):
        if graph.out_edges[v] and not graph.in_edges[v]:
            here = pieces[v]
            depth[v] = min(depth[e.dst] - (pieces[e.dst] != here) for e in graph.out_edges[v])


def _groups(graph: OpGraph, units: Units, members: Sequence[tuple[int, ...]], topology: Topology) -> Groups:
    shared: dict[int, int] = defaultdict(int)
    for group in members:
        shared[units.root(group[0])] += 1
    ops = []
    for group in members:
        root = units.root(group[0])
        label = graph.ops[root].name if shared[root] > 1 else None
        ops.append(replace(_group_op(graph, group, label, topology), part=units.part.get(root)))
    labels = [units.root(group[0]) for group in members]
    coarse = OpGraph(graph.name, tuple(ops), _group_edges(graph, members, labels), graph.source)
    return Groups(graph, coarse, tuple(members))


def _group_op(graph: OpGraph, members: Sequence[int], label: str | None, topology: Topology) -> Op:
    ops = [graph.ops[i] for i in members]
    return replace(
        max(ops, key=weight_s),
        cost_s=_costs(ops, topology),
        memory_bytes=sum(op.memory_bytes for op in ops),
        colocate=label,
        devices=_common_devices(ops, topology),
        flops=total([op.flops for op in ops]),
        multiply_adds=total([op.multiply_adds for op in ops]),
        dense_multiply_adds=total([op.dense_multiply_adds for op in ops]),
        depth=None,
        shapes=(),
    )


def _costs(ops: Sequence[Op], topology: Topology) -> dict[str, float]:
    """Device name -> seconds of all ops (before dividing by speed), for devices on which every op has a cost."""
    sums_s = {d.name: sum(op.cost_on(d) for op in ops) * d.speed for d in topology.devices}
    return {name: sum_s for name, sum_s in sums_s.items() if sum_s < inf}


def _common_devices(ops: Sequence[Op], topology: Topology) -> tuple[str, ...] | None:
    """The devices that every op may run on; None if no op is limited."""
    if all(op.devices is None for op in ops):
        return None
    return tuple(d.name for d in topology.devices if all(op.runs_on(d) for op in ops))


def _group_edges(graph: OpGraph, members: Sequence[Sequence[int]], labels: Sequence[int]) -> tuple[Edge, ...]:
    """One edge per tensor and group that needs it; a group's tensors are numbered in order of appearance.

    Groups of one unit share a device and send each other nothing, so a single edge keeps their order.
    """
    group_of = {op: g for g, group in enumerate(members) for op in group}
    outputs: dict[int, dict[tuple[int, int], int]] = defaultdict(dict)
    edges: dict[tuple[int, int, int], Edge] = {}
    for e in graph.edges:
        src, dst = group_of[e.src], group_of[e.dst]
        if src != dst:
            tensor = (-1, 0) if labels[src] == labels[dst] else (e.src, e.output_index)
            index = outputs[src].setdefault(tensor, len(outputs[src]))
            edges.setdefault((src, dst, index), Edge(src, dst, graph.tensor_bytes[e.src, e.output_index], index))
    return tuple(edges.values())
