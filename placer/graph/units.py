"""Joins ops into units: sets of ops that share a device, because to cut them apart is forbidden or expensive."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import inf

from placer.graph.merging import UnionFind, has_stalled, matching, two_hop
from placer.graph.op_graph import Op, OpGraph
from placer.graph.topology import Topology

SCALAR_BYTES = 16
LARGEST, GROWTH = 0.03, 1.4  # units are merged up to this share of the step's cost; it grows while too many are left
MOST = 0.25  # it grows up to this share, or to twice the average share of a unit if few are wanted
UNLIKE = 0.12  # below this share, only units that can run on the same devices are merged
LIGHT = 0.01  # of the step's cost: an op that takes more, and more than sending a tensor, is no scalar arithmetic
SLIGHT = 1e-4  # of the step's cost: a unit of any size may take in a unit that costs at most this
MANY = 16  # the most variables, or ops that share a weight, that are united by what they exchange with one op
CROWDED = 0.5  # of the memory of the roomiest device that can run it: a merged unit needs at most this
Piece = tuple[int, int | None]
TENSOR_S, TENSOR_S_PER_BYTE = 3e-4, 1e-9  # assumed cost of a cut before any link is measured


class Units:
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
        weights_s = [weight_s(op) for op in graph.ops]
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
        """Put what reads a variable, and what updates it, into the variable's unit, unless more than MANY things would
        meet there: an op that takes the gradients of all variables, the ops that share a weight (the steps of an
        unrolled recurrent layer), or variables that must share a device anyway (one `If` updates them all).
        """
        large = [e for e in self.graph.edges if e.edge_bytes > SCALAR_BYTES]
        makers, users = defaultdict[int, set[int]](set), defaultdict[int, set[int]](set)
        for e in large:
            makers[e.dst].add(self.root(e.src))
            users[e.src].add(self.root(e.dst))
        variables = Counter(self.root(i) for i, op in enumerate(self.graph.ops) if op.memory_bytes > 0)
        held_together = [variables[self.root(i)] for i in range(len(self.graph))]
        for e in large:
            meeting = max(len(makers[e.dst]), len(users[e.src]), held_together[e.src], held_together[e.dst])
            if meeting <= MANY and _carries_parameters(self.graph.ops[e.src], self.graph.ops[e.dst]):
                self._join_if_possible(e.src, e.dst)

    def _settle_scalars(self, weights_s: Sequence[float]) -> None:
        """Put an op that makes a scalar of a tensor (the norm of a gradient, the penalty of a weight) into the unit
        that makes the tensor, and scalar arithmetic (bias corrections, step counts) into the unit of its consumers if
        they are all in one unit; join connected scalar arithmetic that serves several units into a unit of its own. Ops
        that cost much are left out, because their place matters, and so are ops that share a unit already.
        """
        light_s = max(TENSOR_S, LIGHT * self.total_s)
        ops_of = Counter(self.root(u) for u in range(len(self.graph)))
        scalar = [
            op.colocate is None
            and ops_of[self.root(u)] == 1
            and weights_s[u] <= light_s
            and all(e.edge_bytes <= SCALAR_BYTES for e in self.graph.out_edges[u])
            for u, op in enumerate(self.graph.ops)
        ]
        for u in self.graph.order:
            scalar[u] = scalar[u] and not self._settle_reduction(u)
        shared = set()
        for u in reversed(self.graph.order):
            users = {self.root(e.dst) for e in self.graph.out_edges[u]}
            if scalar[u] and len(users) == 1:
                self._join_if_possible(users.pop(), u)
            elif scalar[u] and users:
                shared.add(u)
        for u in shared:
            for e in self.graph.out_edges[u]:
                if e.dst in shared:
                    self._join_if_possible(u, e.dst)

    def _settle_reduction(self, u: int) -> bool:
        """Put an op whose results are scalars into the unit that makes its tensors, if they come from one that keeps
        its devices. Return whether it did. Without this, what takes the norms of all gradients unites all variables.
        """
        makers = {self.root(e.src) for e in self.graph.in_edges[u] if e.edge_bytes > SCALAR_BYTES}
        if len(makers) != 1 or not self.graph.out_edges[u]:
            return False
        maker = makers.pop()
        can_join = self._keeps(maker, u) and self._may_join(maker, u)
        if can_join:
            self._join(maker, u)
        return can_join

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


def weight_s(op: Op) -> float:
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
