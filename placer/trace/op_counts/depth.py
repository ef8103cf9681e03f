"""The sequential depth of one op: how many of its scalar operations have to follow one another."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log2, prod
from typing import Any

from placer.trace.op_counts.flops import BATCH_NORMS, SOFTMAXES, dims, op_flops


def op_depth(op: Any) -> int | None:
    """Levels of scalar operations of a tf.Operation on unlimited processors; None if unknown.

    With unlimited processors k operands are combined in ceil(log2 k) levels, a balanced tree: the span of work-span
    analysis (Blelloch 1996, "Programming parallel algorithms"). An output element of an op with w FLOPs per output
    element is such a tree: 1 level element-wise, ceil(log2 k) if k elements are reduced to one, and one more for the
    products of a convolution or matrix product. An op that only renames a tensor has 0 levels.
    """
    flops = op_flops(op)
    if not flops:
        return None if flops is None else 0
    try:
        if op.type in DEPTHS:
            return DEPTHS[op.type](op)
        return max(1, tree(flops / max(sum(prod(dims(t)) for t in op.outputs), 1))) if op.outputs else 1
    except (TypeError, ValueError):  # an unknown dimension or rank
        return None


def tree(operands: float) -> int:
    """Levels of a balanced tree over `operands` values."""
    return ceil(log2(operands)) if operands > 1 else 0


def _softmax(op: Any) -> int:
    return 3 + 2 * tree(dims(op.inputs[0])[-1])  # maximum, difference, exponential, sum, quotient


def _rows(op: Any) -> int:
    """Elements that share a channel."""
    found = dims(op.inputs[0])
    return prod(found) // max(found[1 if op.get_attr("data_format") == b"NCHW" else -1], 1)


def _batch_norm(op: Any) -> int:
    return 4 + tree(_rows(op)) if op.get_attr("is_training") else 2


def _batch_norm_gradient(op: Any) -> int:
    return 5 + tree(_rows(op))


def _normalised_over_window(op: Any) -> int:
    return 3 + tree(2 * op.get_attr("depth_radius") + 1)


DEPTHS: dict[str, Callable[[Any], int]] = {
    **dict.fromkeys(SOFTMAXES, _softmax),
    **dict.fromkeys(BATCH_NORMS, _batch_norm),
    "FusedBatchNormGradV3": _batch_norm_gradient,
    "LRN": _normalised_over_window,
    "LRNGrad": _normalised_over_window,
}
"""Types that reduce and then continue element-wise, or reduce more than once."""
