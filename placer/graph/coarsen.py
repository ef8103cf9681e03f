"""Joins ops into groups: few enough to search, free of cycles, with related ops kept together.

Two levels are distinguished. A *unit* is a set of ops that must share a device: a variable with its reads, slots,
gradients and updates, and whatever is expensive to cut from them. Searches move units. A *group* is a set of ops that
runs in one piece: the ops of a unit between two visits to other units. So the forward and the backward ops of a layer
are two groups of one unit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from placer.graph.mapping import Mapping
from placer.graph.merging import UnionFind, has_stalled, matching, two_hop
from placer.graph.op_graph import Edge, Op, OpGraph, total
from placer.graph.topology import Topology

SCALAR_BYTES = 16
LARGEST, GROWTH = 0.03, 1.4  # units are merged up to this share of the step's cost; it grows while too many are left
MOST = 0.25  # it grows up to this share, or to twice the average share of a unit if few are wanted
UNLIKE = 0.12  # below this share, only units that can run on the same devices are merged
LIGHT = 0.01  # of the step's cost: an op that takes more, and more than sending a tensor, is no scalar arithmetic
SLIGHT = 1e-4  # of the step's cost: a unit of any size may take in a unit that costs at most this
WIDE = 16  # an op with more large inputs or users, or a device shared by more variables, unites no others with these
CROWDED = 0.5  # of the memory of the roomiest device that can run it: a merged unit needs at most this
SHRINK = 0.8  # factor on the target, each time splitting by depth gives too many groups
Piece = tuple[int, int | None]
TENSOR_S, TENSOR_S_PER_BYTE = 3e-4, 1e-9  # assumed cost of a cut before any link is measured


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
    units = _Units(graph, topology)
    target = groups // 2
    while True:
        units.unite_to(target)
        members = _split_by_depth(graph, units)
        count = sum(not units.is_alone(group[0]) for group in members)
        if count <= groups or target <= 1:
            return _groups(graph, units, members, topology)
        target = int(min(target, units.count) * SHRINK)


class _Units:
    """A partition of the ops into units, which only ever gets coarser. Two units touch if a tensor larger than a scalar
    passes between them.

    can: for the root op of each unit, the devices that can run the unit, as bits.
    held_bytes: for the root op of each unit, the bytes that the unit holds between steps.
    part: for the root op of each unit that belongs to one part of a divided step, the index of that part.
    """

    def __init__(self, graph: OpGraph, topology: Topology) -> None:
        self.graph = graph
        self.sets = UnionFind[int]()
        self.root = self.sets.root  # the op that stands for an op's unit
        self.can = [_runs_on(op, topology) for op in graph.ops]
        self.held_bytes = [op.memory_bytes for op in graph.ops]
        self.room_bytes = [inf if d.memory_bytes is None else CROWDED * d.memory_bytes for d in topology.devices]
        self.part = {i: op.part for i, op in enumerate(graph.ops) if op.part is not None}
        for first, *others in graph.colocated:
            for i in others:
                self._join(first, i)
        self._settle_parameters()
        weights_s = [_weight(op) for op in graph.ops]
        self.total_s = sum(weights_s) or 1.0
        self._settle_scalars(weights_s)
        self.cost_s: dict[int, float] = defaultdict(float)
        for i, seconds in enumerate(weights_s):
            self.cost_s[self.root(i)] += seconds
        self._take(self._cuts())

    @property
    def count(self) -> int:
        """The number of units that touch another unit. Only these count towards a target."""
        return len(self._touching)

    def is_alone(self, op: int) -> bool:
        """Whether the unit of an op touches no other unit."""
        return self.root(op) not in self._touching

    def unite_to(self, target: int) -> None:
        """Merge units until `target` units that touch are left, or no two of these may be merged.

        Units that can run on the same devices come first, because a merged unit can run only where both halves can.
        """
        if len(self.cost_s) > target:
            self._settle_alone()
        limit_s, most_s = LARGEST * self.total_s, max(MOST, 2 / max(1, target)) * self.total_s
        while self.count > target:
            merged = self._round(target, limit_s, alike=True)
            if merged == 0 and limit_s >= UNLIKE * self.total_s:
                merged = self._round(target, limit_s, alike=False)
            if merged == 0:
                if limit_s >= most_s:
                    return
                limit_s *= GROWTH

    def pieces(self) -> list[Piece]:
        """The unit and the micro-batch of each op; ops can run in one piece if they share both."""
        return [(self.root(v), op.micro_batch) for v, op in enumerate(self.graph.ops)]

    def _round(self, target: int, limit_s: float, alike: bool) -> int:
        """Run one round of heavy-edge matching; return the number of pairs merged. alike: merge only units with the
        same devices; else also pairs in which the unit that costs more keeps its devices.

        A hub with more neighbours than may be left would take in nearly all of them, one a round. So its neighbours
        unite in pairs instead.
        """

        def may_unite(a: int, b: int) -> bool:
            if self.cost_s[a] + self.cost_s[b] > limit_s or not self._may_join(a, b):
                return False
            heavier = max(a, b, key=lambda unit: self.cost_s[unit])
            return self.can[a] == self.can[b] or (not alike and self.can[a] & self.can[b] == self.can[heavier])

        pairs = [(a, b) for _, a, b in sorted(self._scores(), reverse=True)]
        united = list(matching(pairs, may_unite))
        if has_stalled(pairs, united):
            united += matching(two_hop(pairs, united, least=target, kind=self.can.__getitem__), may_unite)
        united = united[: max(0, self.count - target)]
        for a, b in united:
            self._join(a, b)
            self.cost_s[a] += self.cost_s.pop(b)
        self._take(self._contracted(self._cut_s))
        return len(united)

    def _take(self, cut_s: dict[tuple[int, int], float]) -> None:
        self._cut_s = cut_s
        self._touching = {unit for pair in cut_s for unit in pair}

    def _cuts(self) -> dict[tuple[int, int], float]:
        """Seconds that it costs to cut each pair of units that touch."""
        cut_s: dict[tuple[int, int], float] = defaultdict(float)
        for e in self.graph.edges:
            # A scalar such as the learning rate reaches every unit; it is no reason to merge them.
            if e.edge_bytes > SCALAR_BYTES:
                cut_s[e.src, e.dst] += TENSOR_S + e.edge_bytes * TENSOR_S_PER_BYTE
        return self._contracted(cut_s)

    def _contracted(self, cut_s: dict[tuple[int, int], float]) -> dict[tuple[int, int], float]:
        """Turn the seconds of cutting pairs of ops into those of cutting the units that hold the ops now."""
        found: dict[tuple[int, int], float] = defaultdict(float)
        for (u, v), seconds in cut_s.items():
            a, b = self.root(u), self.root(v)
            if a != b:
                found[min(a, b), max(a, b)] += seconds
        return found

    def _scores(self) -> list[tuple[float, int, int]]:
        """(seconds saved by not cutting / seconds of compute bound together, unit, unit) for all pairs that touch."""
        least_s = 1e-4 * self.total_s
        return [(s / (self.cost_s[a] + self.cost_s[b] + least_s), a, b) for (a, b), s in self._cut_s.items()]

    def _settle_parameters(self) -> None:
        """Put what reads a variable, and what updates it, into its unit, unless that would unite many: what takes the
        gradients of many variables (their concatenation) goes with none of them, where many must share a device (one
        `If` updates all), the ops that read them are free, and so are the many that share a weight (the steps of an
        unrolled recurrent layer).
        """
        large = [e for e in self.graph.edges if e.edge_bytes > SCALAR_BYTES]
        sources, users = defaultdict[int, set[int]](set), defaultdict[int, set[int]](set)
        for e in large:
            sources[e.dst].add(self.root(e.src))
            users[e.src].add(self.root(e.dst))
        variables = Counter(self.root(i) for i, op in enumerate(self.graph.ops) if op.memory_bytes > 0)
        crowded = {i for i in range(len(self.graph)) if variables[self.root(i)] > WIDE}
        for e in large:
            is_wide = len(sources[e.dst]) > WIDE or len(users[e.src]) > WIDE or e.src in crowded or e.dst in crowded
            if not is_wide and _carries_parameters(self.graph.ops[e.src], self.graph.ops[e.dst]):
                self._join_if_possible(e.src, e.dst)

    def _settle_scalars(self, weights_s: Sequence[float]) -> None:
        """Put an op that makes a scalar of a tensor (the norm of a gradient, the penalty of a weight) into the unit
        that makes the tensor, and scalar arithmetic (bias corrections, step counts) into the unit of its consumers if
        they are all in one unit; join connected scalar arithmetic that serves several units into a unit of its own. Ops
        that cost much are left out, because their place matters.
        """
        light_s = max(TENSOR_S, LIGHT * self.total_s)
        scalar = [
            op.colocate is None and weight_s <= light_s and all(e.edge_bytes <= SCALAR_BYTES for e in out)
            for op, weight_s, out in zip(self.graph.ops, weights_s, self.graph.out_edges, strict=True)
        ]
        self._settle_reductions([u for u in self.graph.order if scalar[u] and self.graph.out_edges[u]])
        ops_of = Counter(self.root(u) for u in range(len(self.graph)))
        free = [is_scalar and ops_of[self.root(u)] == 1 for u, is_scalar in enumerate(scalar)]
        shared = set()
        for u in reversed(self.graph.order):
            users = {self.root(e.dst) for e in self.graph.out_edges[u]}
            if free[u] and len(users) == 1:
                self._join_if_possible(users.pop(), u)
            elif free[u] and users:
                shared.add(u)
        for u in shared:
            for e in self.graph.out_edges[u]:
                if e.dst in shared:
                    self._join_if_possible(u, e.dst)

    def _settle_reductions(self, makers_of_scalars: Sequence[int]) -> None:
        """Put each of these ops that has tensors of one other unit into it, if that unit keeps its devices. Else the
        consumer of the norms of all gradients would unite all variables, or need all their tensors.
        """
        for u in makers_of_scalars:
            here = self.root(u)
            makers = {self.root(e.src) for e in self.graph.in_edges[u] if e.edge_bytes > SCALAR_BYTES} - {here}
            if len(makers) == 1 and self._keeps(maker := makers.pop(), here):
                self._join_if_possible(maker, here)

    def _settle_alone(self) -> None:
        """Put cheap units that only scalars reach (a metric's counts) into the unit that makes these scalars, or into
        that of their only user, because moving them alone gains nothing. The other unit must keep all its devices.
        """
        for u in self.graph.order:
            alone = self.root(u)
            if not self.is_alone(alone):
                continue
            users = {self.root(e.dst) for e in self.graph.out_edges[u]} - {alone}
            makers = [self.root(e.src) for e in self.graph.in_edges[u]]
            for other in [*makers, *(users if len(users) == 1 else ())]:
                added_s = self.cost_s[alone]
                is_cheap = added_s <= SLIGHT * self.total_s or added_s + self.cost_s[other] <= LARGEST * self.total_s
                if other != alone and is_cheap and self._keeps(other, alone) and self._may_join(other, alone):
                    self._join(other, alone)
                    self.cost_s[other] += self.cost_s.pop(alone)
                    break

    def _keeps(self, unit: int, added: int) -> bool:
        """Whether a unit could run on the same devices with the unit `added`."""
        return self.can[unit] & self.can[added] == self.can[unit]

    def _join_if_possible(self, a: int, b: int) -> None:
        """Join the units of two ops if `_may_join` allows it."""
        a, b = self.root(a), self.root(b)
        if self._may_join(a, b):
            self._join(a, b)

    def _may_join(self, a: int, b: int) -> bool:
        """Whether a device can run both units, with memory left for others, and they may share a part."""
        can = self.can[a] & self.can[b]
        held_bytes = self.held_bytes[a] + self.held_bytes[b]
        roomy = not (self.held_bytes[a] and self.held_bytes[b]) or any(
            can >> d & 1 and held_bytes <= room_bytes for d, room_bytes in enumerate(self.room_bytes)
        )
        return bool(can) and roomy and self._may_share(a, b)

    def _may_share(self, a: int, b: int) -> bool:
        return self.part.get(a, self.part.get(b)) == self.part.get(b, self.part.get(a))

    def _join(self, a: int, b: int) -> None:
        a, b = self.root(a), self.root(b)
        if a == b:
            return
        self.can[a] &= self.can[b]
        self.held_bytes[a] += self.held_bytes[b]
        if b in self.part:
            self.part.setdefault(a, self.part[b])
        self.sets.join(a, b)


def _split_by_depth(graph: OpGraph, units: _Units) -> list[tuple[int, ...]]:
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


def _groups(graph: OpGraph, units: _Units, members: Sequence[tuple[int, ...]], topology: Topology) -> Groups:
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


def _weight(op: Op) -> float:
    """Mean seconds over devices; without a profile, an estimate from the op's FLOPs and one launch."""
    if op.cost_s:
        return sum(op.cost_s.values()) / len(op.cost_s)
    return 1e-6 + (op.flops or 0.0) * 1e-11


def _carries_parameters(src: Op, dst: Op) -> bool:
    """Whether a tensor between the two (weight, gradient for the update, slot) should stay with its variable."""
    return src.part == dst.part and (src.type == "ReadVariableOp" or dst.phase == "update")


def _runs_on(op: Op, topology: Topology) -> int:
    """The devices that can run `op`, as bits."""
    return sum(1 << d for d, device in enumerate(topology.devices) if op.runs_on(device))


def _group_op(graph: OpGraph, members: Sequence[int], label: str | None, topology: Topology) -> Op:
    ops = [graph.ops[i] for i in members]
    return replace(
        max(ops, key=_weight),
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
