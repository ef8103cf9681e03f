"""Ways in which each part takes its own examples for all: the statistics of batch normalization.

These change what is computed, so that no other rule offers them, and a plan has to ask for them (`LOCAL`).
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
"""What is done between reductions over examples and what uses these: each part does it with its own estimates."""


def local_way(op: Any) -> Way | None:
    """The way of an op with estimates of each part's own; None where it has none. Raises ValueError where a shape that
    it needs is not known.
    """
    if op.type in FUSED:
        return batch_norm.own_statistics(op)
    if op.type in REDUCED and not op.inputs[0].dtype.is_integer and 0 in axes(op):
        shape = dims(op.inputs[0])
        others = prod(shape[axis] for axis in axes(op) if axis)
        # The variance of one value is 0, and normalized by it, that value says nothing any more.
        return Way((Cut(0), None), (Local(scaled=op.type == "Sum"),), shape[0], least=1 if others > 1 else 2)
    if op.type in VECTORS and len(op.outputs) == 1:
        return Way((None,) * len(op.inputs), (Local(),), extent=0)
    return None
