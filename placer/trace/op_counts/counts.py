"""Counts of one op: FLOPs, multiply-adds and depth, including those of a function that it calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from placer.graph.op_graph import total
from placer.trace.op_counts.depth import op_depth
from placer.trace.op_counts.flops import CALLS, groups_of, op_flops, op_multiply_adds

Bodies = Callable[[Any], Sequence[Any] | None]


class Counts(NamedTuple):
    """The fields of the same names of placer.graph.op_graph.Op; None if unknown."""

    flops: float | None
    multiply_adds: float | None
    dense_multiply_adds: float | None
    depth: int | None


def counts_of(op: Any, bodies: Bodies) -> Counts:
    """The counts of a tf.Operation.

    bodies: returns the ops of the function that an op calls, producers first, or None if the function is missing. A
    folded graph still has the calls that XLA compiles, as it must for convolutions in groups. On a CPU, XLA computes
    such a convolution as if every output channel read all input channels, with weights of 0 between the groups. Its
    dense multiply-adds are therefore its multiply-adds times its groups (docs/decisions/028-grouped-convolutions.md).
    """
    called = bodies(op) if op.type in CALLS else None
    if called is None:
        multiply_adds = op_multiply_adds(op)
        return Counts(op_flops(op), multiply_adds, multiply_adds, op_depth(op))
    inner = [counts_of(part, bodies) for part in called]
    flops, multiply_adds = total([c.flops for c in inner]), total([c.multiply_adds for c in inner])
    times = [groups_of(part) if _compiled(op) else 1 for part in called]
    dense = [
        None if c.dense_multiply_adds is None else n * c.dense_multiply_adds for n, c in zip(times, inner, strict=True)
    ]
    return Counts(flops, multiply_adds, total(dense), _longest(called, [c.depth for c in inner]))


def _compiled(op: Any) -> bool:
    """Whether XLA compiles the function that an op calls."""
    try:
        return bool(op.get_attr("_XlaMustCompile"))
    except ValueError:  # it has no such attribute
        return False


def _longest(ops: Sequence[Any], depths: Sequence[int | None]) -> int | None:
    """Levels of the deepest chain of `ops` (producers first); None if a depth is unknown."""
    until: dict[str, int] = {}
    for op, depth in zip(ops, depths, strict=True):
        if depth is None:
            return None
        until[op.name] = depth + max((until.get(tensor.op.name, 0) for tensor in op.inputs), default=0)
    return max(until.values(), default=0)
