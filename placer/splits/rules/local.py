"""Ways in which each part uses only its own examples, for the statistics of batch normalization.

They change what is computed. So no other rule offers them, and a plan has to ask for them (`LOCAL`).
"""

from __future__ import annotations

from math import prod
from typing import Any

from placer.splits.rules import batch_norm, elementwise
from placer.splits.rules.reductions import axes
from placer.splits.rules.way import Cut, Local, Way
from placer.trace.op_counts.flops import dims

FUSED = frozenset({batch_norm.FORWARD, batch_norm.GRADIENT})
REDUCED = frozenset({"Mean", "Sum"})
VECTORS = frozenset(
    [*elementwise.UNARY, *elementwise.BINARY, *elementwise.GRADIENTS, *elementwise.OTHERS, "Reshape", "Squeeze",
     "ExpandDims"]
)  # fmt: skip
"""Ops between the reductions over examples and the users of these. Each part does them with its own estimates."""


def local_way(op: Any) -> Way | None:
    """Return the way to divide an op so that each part works with its own estimates; None if there is none.

    Raises ValueError if a shape that it needs is unknown.
    """
    if op.type in FUSED:
        return batch_norm.own_statistics(op)
    if op.type in REDUCED and not op.inputs[0].dtype.is_integer and 0 in axes(op):
        shape = dims(op.inputs[0])
        others = prod(shape[axis] for axis in axes(op) if axis)
        # The variance of a single value is 0, and a value normalized by it carries no information.
        return Way((Cut(0), None), (Local(scaled=op.type == "Sum"),), shape[0], least=1 if others > 1 else 2)
    if op.type in VECTORS and len(op.outputs) == 1:
        return Way((None,) * len(op.inputs), (Local(),), extent=0)
    return None
