"""Rules for ops on images and volumes other than convolutions: pooling, resizing, blocks of space.

Images are [batch, height, width, channel], volumes [batch, depth, height, width, channel]; or channels come second, by
`data_format`.
"""

from __future__ import annotations

from typing import Any

from placer.splits.rules.way import BATCH, CHANNEL, Cut, Size, Way, Ways, axis_name, channel_axis
from placer.trace.op_counts.flops import dims


def pool(op: Any) -> Ways:
    """MaxPool and AvgPool (x -> y), MaxPoolGrad (x, y, gradient of y -> gradient of x): batch and channel.

    If the window spans several elements of one of these axes, the axis stays whole.
    """
    out = dims(op.outputs[0])
    return {
        name: Way((Cut(axis),) * len(op.inputs), (Cut(axis),), out[axis]) for name, axis in _unpooled(op, out).items()
    }


def avg_pool_gradient(op: Any) -> Ways:
    """AvgPoolGrad: sizes of x, gradient of y -> gradient of x."""
    out = dims(op.outputs[0])
    return {
        name: Way((None, Cut(axis)), (Cut(axis),), out[axis], (Size(0, axis),))
        for name, axis in _unpooled(op, out).items()
    }


def _unpooled(op: Any, out: list[int]) -> dict[str, int]:
    """Return name -> axis, for axes along which the window has one element and moves by one."""
    window, strides = op.get_attr("ksize"), op.get_attr("strides")
    axes = {BATCH: 0, CHANNEL: channel_axis(op, len(out))}
    return {name: axis for name, axis in axes.items() if window[axis] == strides[axis] == 1}


def local_response(op: Any) -> Ways:
    """LRN and its gradient: any axis except the last, the channels, because they combine channels."""
    out = dims(op.outputs[0])
    return {axis_name(i): Way((Cut(i),) * len(op.inputs), (Cut(i),), n) for i, n in enumerate(out[:-1])}


def resize(op: Any) -> Ways:
    """ResizeBilinear and others, ResizeNearestNeighborGrad: images, size of height and width -> images."""
    out = dims(op.outputs[0])
    return {name: Way((Cut(i), None), (Cut(i),), out[i]) for name, i in ((BATCH, 0), (CHANNEL, 3))}


def resize_gradient(op: Any) -> Ways:
    """ResizeBilinearGrad and others: gradient, original images (only their shape is used) -> gradient."""
    out = dims(op.outputs[0])
    return {name: Way((Cut(i), Cut(i)), (Cut(i),), out[i]) for name, i in ((BATCH, 0), (CHANNEL, 3))}


def depth_blocks(op: Any) -> Ways:
    """SpaceToDepth and DepthToSpace: only the batch, because they mix the channels of neighbouring pixels."""
    return {BATCH: Way((Cut(0),), (Cut(0),), dims(op.outputs[0])[0])}


def batch_blocks(op: Any) -> Ways:
    """SpaceToBatchND, BatchToSpaceND: x [batch, blocked..., others...], block [n], paddings or crops: the others."""
    taken, (blocked,) = dims(op.inputs[0]), dims(op.inputs[1])
    return {axis_name(a): Way((Cut(a), None, None), (Cut(a),), n) for a, n in enumerate(taken) if a > blocked}
