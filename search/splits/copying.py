"""The choice of whole ops that each part runs itself, because sending their outputs costs more."""

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

FREE = frozenset({"Const", "Placeholder"})  # ops whose outputs every device has
UNIT_S = 1e-9  # the unit of capacities, which are whole numbers
MOST = 2**30  # a capacity that is too large for any minimum cut


def with_copies(graph: StepGraph, plan: SplitPlan, rates: Rates, parts: int) -> SplitPlan:
    """Return `plan` with those whole ops copied that make the total cost smallest.

    A whole op costs the sending of each of its tensors that a part needs. A copied op costs its own time for each part
    except one. Which ops to copy is a minimum cut between the ops that have to be whole and the divided ops (Ford &
    Fulkerson 1956): a tensor's arc is cut if its op is whole and any of its users is not.
    """
    if not plan.divisions:
        return plan
    network = _Network(graph, plan, rates, parts)
    copied = {name: Division(COPIES, parts) for name in network.copied()}
    return SplitPlan({**plan.divisions, **copied}, plan.in_flight)


class _Network:
    """The flow network. Node 0 is all that has to be whole, node 1 all that is in parts. Each other whole op and each
    tensor of a whole op has its own node.
    """

    def __init__(self, graph: StepGraph, plan: SplitPlan, rates: Rates, parts: int) -> None:
        self.graph, self.plan, self.rates, self.parts = graph, plan, rates, parts
        self.places: dict[str, int] = {}
        self.arcs: dict[tuple[int, int], int] = {}
        for op in graph.order:
            if op.name not in plan.divisions and op.type not in FREE:
                self._add(op)

    def copied(self) -> Iterator[str]:
        """Yield the names of the ops on the parts' side of the cheapest cut."""
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
        """Add an op's arcs: the cost of copying the op, and for each of its tensors the cost of sending it."""
        if self.graph.way(op.name, COPIES) is None:
            here = self.places[op.name] = 0  # a finite arc could be cut instead of a message that takes as long
        else:
            here = self._place(op.name)
            self._arc(0, here, self.rates.op_s.get(op.name, 0.0) * (self.parts - 1))
        for tensor in op.outputs:
            users = {self._user(user) for user in tensor.consumers()} - {None}
            if users:
                text = text_of(op.name, tensor.value_index)
                between = self._place(f"^{text}")  # no node's name begins with ^
                self._arc(here, between, self.rates.transfer_s(_size(tensor)))
                for user in users:
                    self._arc(between, 1 if user == "" else self._place(str(user)), MOST * UNIT_S)

    def _user(self, user: Any) -> str | None:
        """Return the name of a user that may be copied; "" for a divided user; None for a user that cannot be copied,
        because it stays whole and needs no tensor sent.
        """
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
