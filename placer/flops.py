"""Floating-point operations of one op, where its type has a known count. A multiply-add counts two."""

from __future__ import annotations

from math import prod
from typing import Any

FREE = frozenset({"Reshape", "Identity", "ReadVariableOp", "VarHandleOp", "Squeeze", "ExpandDims", "NoOp", "Shape"})


def op_flops(op: Any) -> float | None:
    """FLOPs of a tf.Operation from its static shapes; None where a shape is unknown or the type has no count.

    Convolutions and their gradients cost the same: 2 x output elements of the forward op x kernel elements per
    output channel (Goodfellow et al. 2016, ch. 9). Element-wise ops count one per output element.
    """
    if op.type in FREE:
        return 0.0
    count = COUNTS.get(op.type)
    try:
        return None if not op.outputs else float((count or _elementwise)(op))
    except (TypeError, ValueError):  # an unknown dimension or rank
        return None


def _dims(tensor: Any) -> list[int]:
    dims = tensor.shape.as_list()
    if any(d is None for d in dims):
        raise ValueError("unknown dimension")
    return list(dims)


def _elementwise(op: Any) -> int:
    return sum(prod(_dims(t)) for t in op.outputs)


def _reduction(op: Any) -> int:
    return prod(_dims(op.inputs[0]))


def _matmul(op: Any) -> int:
    inner = _dims(op.inputs[0])[-2 if op.get_attr("transpose_a") else -1]
    return 2 * prod(_dims(op.outputs[0])) * inner


def _batch_matmul(op: Any) -> int:
    inner = _dims(op.inputs[0])[-2 if op.get_attr("adj_x") else -1]
    return 2 * prod(_dims(op.outputs[0])) * inner


def _conv(op: Any) -> int:
    return 2 * prod(_dims(op.outputs[0])) * prod(_dims(op.inputs[1])[:-1])


def _conv_input_gradient(op: Any) -> int:
    kernel, forward_output = _dims(op.inputs[1]), _dims(op.inputs[2])
    return 2 * prod(forward_output) * prod(kernel[:-1])


def _conv_filter_gradient(op: Any) -> int:
    kernel, forward_output = _dims(op.outputs[0]), _dims(op.inputs[2])
    return 2 * prod(forward_output) * prod(kernel[:-1])


def _depthwise(op: Any) -> int:
    return 2 * prod(_dims(op.outputs[0])) * prod(_dims(op.inputs[1])[:2])


COUNTS = {
    "MatMul": _matmul,
    "_FusedMatMul": _matmul,
    "BatchMatMulV2": _batch_matmul,
    "Conv2D": _conv,
    "_FusedConv2D": _conv,
    "Conv2DBackpropInput": _conv_input_gradient,
    "Conv2DBackpropFilter": _conv_filter_gradient,
    "DepthwiseConv2dNative": _depthwise,
    "Sum": _reduction,
    "Mean": _reduction,
    "Max": _reduction,
}
