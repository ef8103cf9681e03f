"""The table of rules: op type -> the ways in which an op of that type can be divided.

An op of a type that is not in the table stays whole, and ends a divided region: random draws, loops and branches, ops
with side effects, and types without a rule yet.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from placer.splits.plan import LOCAL
from placer.splits.rules import batch_norm, convolutions, elementwise, images, linear, moving, reductions, resources
from placer.splits.rules.copies import COPIES, copies
from placer.splits.rules.local import local_way
from placer.splits.rules.way import Cut, Rule, Way, Ways, static

RULES: dict[str, Rule] = {
    **dict.fromkeys([*elementwise.UNARY, *elementwise.GRADIENTS], elementwise.elementwise),
    **dict.fromkeys([*elementwise.BINARY, *elementwise.OTHERS], elementwise.elementwise),
    "Select": elementwise.select,
    "MatMul": linear.matmul,
    **dict.fromkeys(["BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"], linear.batch_matmul),
    "Einsum": linear.einsum,
    "BiasAdd": linear.bias_add,
    "BiasAddGrad": linear.bias_add_grad,
    **dict.fromkeys(["Conv2D", "Conv3D", "DepthwiseConv2dNative"], convolutions.convolution),
    "Conv2DBackpropInput": convolutions.input_gradient,
    "Conv3DBackpropInputV2": convolutions.input_gradient,
    "DepthwiseConv2dNativeBackpropInput": convolutions.input_gradient,
    "Conv2DBackpropFilter": convolutions.filter_gradient,
    "Conv3DBackpropFilterV2": convolutions.filter_gradient,
    "DepthwiseConv2dNativeBackpropFilter": convolutions.filter_gradient,
    **dict.fromkeys(["MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D"], images.pool),
    **dict.fromkeys(["MaxPoolGrad", "MaxPool3DGrad"], images.pool),
    **dict.fromkeys(["AvgPoolGrad", "AvgPool3DGrad"], images.avg_pool_gradient),
    **dict.fromkeys(["LRN", "LRNGrad"], images.local_response),
    **dict.fromkeys(["ResizeArea", "ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor"], images.resize),
    "ResizeNearestNeighborGrad": images.resize,
    **dict.fromkeys(["ResizeBilinearGrad", "ResizeBicubicGrad"], images.resize_gradient),
    **dict.fromkeys(["SpaceToDepth", "DepthToSpace"], images.depth_blocks),
    **dict.fromkeys(["SpaceToBatchND", "BatchToSpaceND"], images.batch_blocks),
    batch_norm.FORWARD: batch_norm.batch_norm,
    batch_norm.GRADIENT: batch_norm.batch_norm_gradient,
    **dict.fromkeys([*reductions.COMBINED, "Prod", "All", "Any", "EuclideanNorm"], reductions.reduction),
    **dict.fromkeys(["ArgMax", "ArgMin"], reductions.reduction),
    **dict.fromkeys(["Cumsum", "Cumprod", "CumulativeLogsumexp", "ReverseV2"], reductions.along),
    **dict.fromkeys(["Softmax", "LogSoftmax"], reductions.softmax),
    "SparseSoftmaxCrossEntropyWithLogits": reductions.sparse_cross_entropy,
    "SoftmaxCrossEntropyWithLogits": reductions.cross_entropy,
    "L2Loss": reductions.l2_loss,
    **dict.fromkeys([*reductions.SEGMENTS, "UnsortedSegmentProd"], reductions.segments),
    "TopKV2": reductions.top_k,
    "InTopKV2": reductions.in_top_k,
    "Reshape": moving.reshape,
    **dict.fromkeys(["Squeeze", "ExpandDims"], moving.squeezed),
    "Transpose": moving.transpose,
    "ConcatV2": moving.concat,
    **dict.fromkeys(["Split", "SplitV"], moving.split),
    "Pack": moving.pack,
    "Unpack": moving.unpack,
    "Slice": moving.take_slice,
    "StridedSlice": moving.strided_slice,
    "StridedSliceGrad": moving.strided_slice_gradient,
    **dict.fromkeys(["Pad", "PadV2", "MirrorPad", "MirrorPadGrad"], moving.pad),
    "Roll": moving.roll,
    "MatrixBandPart": moving.band,
    "Tile": moving.tile,
    "BroadcastTo": moving.broadcast,
    "Fill": moving.fill,
    "GatherV2": moving.gather,
    "GatherNd": moving.gather_nd,
    "ScatterNd": moving.scatter_nd,
    "OneHot": moving.one_hot,
    "VarHandleOp": resources.variable,
    "ReadVariableOp": resources.read,
    "ResourceGather": resources.gather,
    **dict.fromkeys(resources.UPDATES, resources.update),
    **dict.fromkeys(resources.SPARSE_UPDATES, resources.sparse_update),
    **dict.fromkeys(resources.SCATTERS, resources.scatter),
}


def ways_of(op: Any) -> Ways:
    """Return the ways in which a tf.Operation can be divided; none if it has no rule, or if a shape is unknown."""
    rule = RULES.get(op.type)
    if rule is None:
        return {}
    try:
        found = rule(op)
    except ValueError:
        return {}
    ways = {name: way for name, way in found.items() if way.extent >= 2 * way.least}
    return {name: way for name, way in ways.items() if _is_sized(op, way) and _has_axes(op, way)}


def way_called(op: Any, name: str, ways: Ways) -> Way | None:
    """Return the way called `name`: one of `ways`, or COPIES (if the op has a rule) or LOCAL, which only plans ask for.

    None if there is no such way.
    """
    if name == COPIES:
        return copies(op) if op.type in RULES else None
    if name == LOCAL:
        try:
            return local_way(op)
        except ValueError:
            return None
    return ways.get(name)


def _is_sized(op: Any, way: Way) -> bool:
    """Whether the constant inputs that contain a part's size are known."""
    try:
        return all(static(op, size.argument).ndim == 1 for size in way.sizes)
    except ValueError:
        return False


def _has_axes(op: Any, way: Way) -> bool:
    """Whether the rank of each tensor that is cut is known; a rule may look at the output alone."""
    return all(
        tensor.dtype == tf.resource or tensor.shape.rank is not None
        for tensor, cut in zip(op.inputs, way.inputs, strict=True)
        if isinstance(cut, Cut)
    )
