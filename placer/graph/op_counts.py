"""Counts of one op: FLOPs, multiply-adds and depth, including those of a function that it calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from placer.graph.op_depth import op_depth
from placer.graph.op_flops import CALLS, op_flops, op_multiply_adds

Bodies = Callable[[Any], Sequence[Any] | None]


class Counts(NamedTuple):
    """The fields of the same names of placer.graph.op_graph.Op; None where unknown."""

    flops: float | None
    multiply_adds: float | None
    depth: int | None


def counts_of(op: Any, bodies: Bodies) -> Counts:
    """The counts of a tf.Operation.

    bodies: returns the ops of the function that an op calls, producers first, or None where the function is missing. A
    folded graph still has calls where XLA compiles them, as it must for convolutions in groups.
    """
    called = bodies(op) if op.type in CALLS else None
    if called is None:
        return Counts(op_flops(op), op_multiply_adds(op), op_depth(op))
    inner = [counts_of(part, bodies) for part in called]
    flops, multiply_adds = total([c.flops for c in inner]), total([c.multiply_adds for c in inner])
    return Counts(flops, multiply_adds, _longest(called, [c.depth for c in inner]))


def total(counts: Sequence[float | None]) -> float | None:
    """The sum; None where one count is unknown."""
    known = [count for count in counts if count is not None]
    return float(sum(known)) if len(known) == len(counts) else None


def _longest(ops: Sequence[Any], depths: Sequence[int | None]) -> int | None:
    """Levels of the deepest chain."""
    until: dict[str, int] = {}
    for op, depth in zip(ops, depths, strict=True):
        if depth is None:
            return None
        until[op.name] = depth + max((until.get(tensor.op.name, 0) for tensor in op.inputs), default=0)
    return max(until.values(), default=0)
