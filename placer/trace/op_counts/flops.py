"""Floating-point operations of one op, if its type has a known count. A multiply-add counts two."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

FREE = frozenset({"Reshape", "Identity", "ReadVariableOp", "VarHandleOp", "Squeeze", "ExpandDims", "NoOp", "Shape"})
# Control flow: the graph does not say how often their bodies run.
LOOPS = frozenset({"While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"})
CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})  # counted in placer/trace/op_counts/counts.py


def op_flops(op: Any) -> float | None:
    """FLOPs of a tf.Operation from its static shapes; None if a shape is unknown or the type has no count.

    Convolutions and their gradients cost the same: 2 x output elements of the forward op x kernel elements per
    output channel (Goodfellow et al. 2016, ch. 9). Reductions count one per input element. Element-wise ops, and ops
    that only move data, count one per output element, or per element of the largest input if there is no output.
    """
    if op.type in FREE:
        return 0.0
    if op.type in LOOPS or op.type in CALLS:
        return None
    try:
        return float(COUNTS.get(op.type, _elementwise)(op))
    except (TypeError, ValueError):  # an unknown dimension or rank
        return None


def op_multiply_adds(op: Any) -> float | None:
    """Multiply-adds of a tf.Operation, two FLOPs each; 0 unless it is a convolution or a matrix product."""
    flops = op_flops(op)
    return None if flops is None else flops / 2 if op.type in MULTIPLY_ADDS else 0.0


def groups_of(op: Any) -> int:
    """The number of groups of a convolution or its gradient; 1 for other ops, and if a shape is unknown."""
    try:
        return GROUPS.get(op.type, lambda _: 1)(op)
    except (TypeError, ValueError):
        return 1


def dims(tensor: Any) -> list[int]:
    """The shape of a tensor. Raises ValueError if it is not known."""
    found = tensor.shape.as_list()
    if any(d is None for d in found):
        raise ValueError("unknown dimension")
    return list(found)


def _elements(tensor: Any) -> int:
    return prod(dims(tensor))


def _elementwise(op: Any) -> int:
    written = op.outputs or sorted(op.inputs, key=_elements)[-1:]
    return sum(map(_elements, written))


def _reduction(op: Any) -> int:
    return _elements(op.inputs[0])


def _sum_of_all(op: Any) -> int:
    return sum(map(_elements, op.inputs))


def _matmul(op: Any) -> int:
    inner = dims(op.inputs[0])[-2 if op.get_attr("transpose_a") else -1]
    return 2 * prod(dims(op.outputs[0])) * inner


def _batch_matmul(op: Any) -> int:
    inner = dims(op.inputs[0])[-2 if op.get_attr("adj_x") else -1]
    return 2 * prod(dims(op.outputs[0])) * inner


def _conv(op: Any) -> int:
    return 2 * prod(dims(op.outputs[0])) * prod(dims(op.inputs[1])[:-1])


def _conv_input_gradient(op: Any) -> int:
    kernel, forward_output = dims(op.inputs[1]), dims(op.inputs[2])
    return 2 * prod(forward_output) * prod(kernel[:-1])


def _conv_filter_gradient(op: Any) -> int:
    kernel, forward_output = dims(op.outputs[0]), dims(op.inputs[2])
    return 2 * prod(forward_output) * prod(kernel[:-1])


def _groups(op: Any, images: Any, kernel: Any) -> int:
    channels = dims(images)[1 if op.get_attr("data_format") == b"NCHW" else -1]
    return max(1, channels // dims(kernel)[-2])


def _depthwise(op: Any) -> int:
    return 2 * prod(dims(op.outputs[0])) * prod(dims(op.inputs[1])[:2])


def _depthwise_input_gradient(op: Any) -> int:
    return 2 * prod(dims(op.inputs[2])) * prod(dims(op.inputs[1])[:2])


def _depthwise_filter_gradient(op: Any) -> int:
    return 2 * prod(dims(op.inputs[2])) * prod(dims(op.outputs[0])[:2])


def _einsum(op: Any) -> int:
    """One multiply-add per combination of all labels; one product per combination if no label is summed over."""
    taken, _, left = op.get_attr("equation").decode().replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    for labels, tensor in zip(taken.split(","), op.inputs, strict=True):
        for label, size in _label_sizes(labels, dims(tensor)).items():
            sizes[label] = max(size, sizes.get(label, 1))  # an axis of length 1 is broadcast
    summed = any(label not in left for label in sizes if label.isalpha())
    return (2 if summed else 1) * prod(sizes.values())


def _label_sizes(labels: str, sizes: list[int]) -> dict[str, int]:
    """Label -> size; the axes of `...` are numbered from the right, because broadcasting aligns them there."""
    before, dots, after = labels.partition("...")
    middle = len(sizes) - len(before) - len(after)
    named = [*before, *(str(i) for i in reversed(range(middle if dots else 0))), *after]
    return dict(zip(named, sizes, strict=True))


def _pool(op: Any) -> int:
    return _window(op) * _elements(op.outputs[0])


def _pool_gradient(op: Any) -> int:
    return _window(op) * _elements(op.inputs[1])  # of the forward op's output, or its gradient


def _window(op: Any) -> int:
    return int(prod(op.get_attr("ksize")))


def _normalised_over_window(op: Any) -> int:
    return 2 * (2 * int(op.get_attr("depth_radius")) + 1) * _elements(op.outputs[0])


def _softmax(op: Any) -> int:
    return 5 * _elements(op.inputs[0])  # maximum, difference, exponential, sum, quotient


def _batch_norm(op: Any) -> int:
    """One multiply-add per element; training adds the sums of elements and of squares."""
    return (5 if op.get_attr("is_training") else 2) * _elements(op.inputs[0])


def _batch_norm_gradient(op: Any) -> int:
    return 8 * _elements(op.inputs[0])  # two sums (one of products), normalising again, and combining


Count = Callable[[Any], int]

GROUPS: dict[str, Count] = {
    "Conv2D": lambda op: _groups(op, op.inputs[0], op.inputs[1]),
    "Conv2DBackpropInput": lambda op: _groups(op, op.outputs[0], op.inputs[1]),
    "Conv2DBackpropFilter": lambda op: _groups(op, op.inputs[0], op.outputs[0]),
}
MULTIPLY_ADDS: dict[str, Count] = {
    "MatMul": _matmul,
    "_FusedMatMul": _matmul,
    "BatchMatMul": _batch_matmul,
    "BatchMatMulV2": _batch_matmul,
    "BatchMatMulV3": _batch_matmul,
    "Conv2D": _conv,
    "_FusedConv2D": _conv,
    "Conv3D": _conv,
    "Conv2DBackpropInput": _conv_input_gradient,
    "Conv3DBackpropInputV2": _conv_input_gradient,
    "Conv2DBackpropFilter": _conv_filter_gradient,
    "Conv3DBackpropFilterV2": _conv_filter_gradient,
    "DepthwiseConv2dNative": _depthwise,
    "_FusedDepthwiseConv2dNative": _depthwise,
    "DepthwiseConv2dNativeBackpropInput": _depthwise_input_gradient,
    "DepthwiseConv2dNativeBackpropFilter": _depthwise_filter_gradient,
    "Einsum": _einsum,
}
"""The types whose work is multiply-adds: convolutions, matrix products, and gradients of these."""
SOFTMAXES = ("Softmax", "LogSoftmax", "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits")
BATCH_NORMS = ("FusedBatchNormV3", "_FusedBatchNormEx")
REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "ArgMax", "ArgMin", "EuclideanNorm", "L2Loss",
              "BiasAddGrad", "SegmentSum", "UnsortedSegmentSum")  # fmt: skip
COUNTS: dict[str, Count] = {
    **MULTIPLY_ADDS,
    **dict.fromkeys(REDUCTIONS, _reduction),
    "AddN": _sum_of_all,
    "MaxPool": _pool,
    "AvgPool": _pool,
    "MaxPoolGrad": _pool_gradient,
    "AvgPoolGrad": _pool_gradient,
    "LRN": _normalised_over_window,
    "LRNGrad": _normalised_over_window,
    **dict.fromkeys(SOFTMAXES, _softmax),
    **dict.fromkeys(BATCH_NORMS, _batch_norm),
    "FusedBatchNormGradV3": _batch_norm_gradient,
}
