"""Which whole ops of a divided step each part had better do for itself, because sending what they make costs more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from placer.splits.pieces import text_of
from placer.splits.plan import Division, SplitPlan
from placer.splits.rules.copies import COPIES
from placer.splits.step_graph import StepGraph
from placer.trace.build_graph import tensor_bytes
from placer.trace.op_counts.flops import dims
from search.splits.propagate import Rates

FREE = frozenset({"Const", "Placeholder"})  # every device has what they make
UNIT_S = 1e-9  # of capacities, which are whole numbers
MOST = 2**30  # a capacity that no cut pays


def with_copies(graph: StepGraph, plan: SplitPlan, rates: Rates, parts: int) -> SplitPlan:
    """`plan` with whole ops copied where that is cheapest in all.

    A whole op costs what it takes to send each tensor that a part needs of it; a copied one costs its own time for each
    part but one. Which ops to copy is a minimum cut between what has to be whole and what is divided (Ford & Fulkerson
    1956): a tensor's arc is cut where its op is whole and any of its users is not.
    """
    if not plan.divisions:
        return plan
    network = _Network(graph, plan, rates, parts)
    copied = {name: Division(COPIES, parts) for name in network.copied()}
    return SplitPlan({**plan.divisions, **copied}, plan.in_flight)


class _Network:
    """Node 0 is what has to be whole, node 1 what is in parts; whole ops and their tensors have nodes of their own."""

    def __init__(self, graph: StepGraph, plan: SplitPlan, rates: Rates, parts: int) -> None:
        self.graph, self.plan, self.rates, self.parts = graph, plan, rates, parts
        self.places: dict[str, int] = {}
        self.arcs: dict[tuple[int, int], int] = {}
        for op in graph.order:
            if op.name not in plan.divisions and op.type not in FREE:
                self._add(op)

    def copied(self) -> Iterator[str]:
        """The ops on the parts' side of the cheapest cut."""
        size = len(self.places) + 2
        ends = np.array(list(self.arcs), np.int32).reshape(-1, 2)
        capacity = csr_array((np.array(list(self.arcs.values()), np.int32), ends.T), (size, size))
        flow = maximum_flow(capacity, 0, 1).flow
        left = csr_array(capacity - flow)
        left.data[left.data < 0] = 0
        left.eliminate_zeros()
        whole = set(breadth_first_order(left, 0, return_predecessors=False).tolist())
        for op in self.graph.order:
            if self.places.get(op.name, 0) not in whole and op.name in self.places:
                yield op.name

    def _add(self, op: Any) -> None:
        """An op's arcs: what copying it costs, and for each of its tensors what sending that costs."""
        here = self._place(op.name)
        can = self.graph.way(op.name, COPIES) is not None
        self._arc(0, here, self.rates.op_s.get(op.name, 0.0) * (self.parts - 1) if can else MOST * UNIT_S)
        for tensor in op.outputs:
            users = {self._user(user) for user in tensor.consumers()} - {None}
            if users:
                text = text_of(op.name, tensor.value_index)
                between = self._place(f"^{text}")  # no node's name begins so
                self._arc(here, between, self.rates.transfer_s(_size(tensor)))
                for user in users:
                    self._arc(between, 1 if user == "" else self._place(str(user)), MOST * UNIT_S)

    def _user(self, user: Any) -> str | None:
        """ "" for a divided op, None for one that cannot be copied, which is then no reason to send anything."""
        if user.name in self.plan.divisions:
            return ""
        return user.name if self.graph.way(user.name, COPIES) is not None else None

    def _place(self, name: str) -> int:
        return self.places.setdefault(name, len(self.places) + 2)

    def _arc(self, begin: int, end: int, cost_s: float) -> None:
        units = min(MOST, int(cost_s / UNIT_S) + 1)
        self.arcs[begin, end] = min(MOST, self.arcs.get((begin, end), 0) + units)


def _size(tensor: Any) -> float:
    try:
        dims(tensor)
    except ValueError:
        return float(MOST)
    return float(tensor_bytes(tensor.shape, tensor.dtype))
