"""Cases of convolutions, pooling, resizing and normalization."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from tests.placer.splits.rules.checker import Case, Fixed
from tests.placer.splits.rules.draw import Draw, makes


def _windows(d: Draw, rank: int, window: list[int]) -> tuple[list[int], list[int], int, str]:
    """Extents of space before and after a window passed over them; its stride and padding."""
    stride, padding = d.number(1, 2), d.pick("SAME", "VALID")
    space = [d.number(k, 6) for k in window]
    made = [-(-n // stride) if padding == "SAME" else (n - k) // stride + 1 for n, k in zip(space, window, strict=True)]
    return space, made, stride, padding


def _laid_out(layout: str, batch: int, space: list[int], channels: int) -> list[int]:
    return [batch, channels, *space] if layout.startswith("NC") else [batch, *space, channels]


def _convolution(d: Draw, kind: str, rank: int, layout: str) -> tuple[list[int], list[int], list[int], dict[str, Any]]:
    """Shapes of x, filter and y, and the attributes."""
    window, dilation = [d.number(1, 3) for _ in range(rank)], 1
    has_all = kind == "Conv2D" or _has_onednn()  # else no gradients of dilated and grouped convolutions
    if rank == 2 and "Depthwise" not in kind and has_all and d.flag():
        dilation = 2
    wide = [(k - 1) * dilation + 1 for k in window]
    space, made, stride, padding = _windows(d, rank, wide)
    if dilation > 1:
        stride, made = 1, space if padding == "SAME" else [n - k + 1 for n, k in zip(space, wide, strict=True)]
    same = d.number(2)
    batch, taken, out = (same, same, same) if d.flag() else (d.number(), d.number(), d.number())
    if "Depthwise" in kind:
        kernel, channels, out = [*window, taken, min(out, 3)], taken, taken * min(out, 3)
    else:
        groups = d.pick(1, 1, d.number(2, 3)) if kind in GROUPED and has_all else 1
        kernel, channels, out = [*window, taken, out * groups], taken * groups, out * groups
    attributes = {
        "strides": _laid_out(layout, 1, [stride] * rank, 1),
        "dilations": _laid_out(layout, 1, [dilation] * rank, 1),
        "padding": padding,
        "data_format": layout,
    }
    is_known = kind == "Conv2D" or (layout == "NHWC" and kernel[2] == channels)  # else the CPU has no kernel
    if padding == "VALID" and rank == 2 and dilation == stride == 1 and is_known and d.flag():
        edges = [(d.number(0, k - 1), d.number(0, k - 1)) for k in window]
        made = [n + sum(edge) for n, edge in zip(made, edges, strict=True)]
        pairs = [(0, 0), (0, 0), *edges] if layout == "NCHW" else [(0, 0), *edges, (0, 0)]
        attributes |= {"padding": "EXPLICIT", "explicit_paddings": [n for pair in pairs for n in pair]}
    return _laid_out(layout, batch, space, channels), kernel, _laid_out(layout, batch, made, out), attributes


@cache
def _has_onednn() -> bool:
    """Whether TensorFlow uses oneDNN on this CPU, which has more convolutions than TensorFlow itself."""
    one = tf.ones([1, 1, 1, 1])
    try:
        tf.raw_ops.Conv2D(input=one, filter=one, strides=[1] * 4, padding="SAME", data_format="NCHW")
    except (tf.errors.UnimplementedError, tf.errors.InvalidArgumentError):
        return False
    return True


GROUPED = {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"}
CONVOLUTIONS = [
    f"{base}{what}"
    for base, whats in (
        ("Conv2D", ("", "BackpropInput", "BackpropFilter")),
        ("Conv3D", ("", "BackpropInputV2", "BackpropFilterV2")),
        ("DepthwiseConv2dNative", ("", "BackpropInput", "BackpropFilter")),
    )
    for what in whats
]


@makes(*CONVOLUTIONS)
def convolution(d: Draw, kind: str) -> Case:
    rank = 3 if "3D" in kind else 2
    layout = "NDHWC" if rank == 3 else "NHWC"
    if kind.startswith("Conv2D") and _has_onednn():
        layout = d.pick("NHWC", "NCHW")
    x, kernel, y, attributes = _convolution(d, kind, rank, layout)
    if "Filter" in kind:
        return Case(kind, [d.numbers(x), Fixed(np.array(kernel, np.int32)), d.numbers(y)], attributes)
    if "Input" in kind:
        is_short = kind == "Conv2DBackpropInput" and layout == "NHWC" and x[3] == kernel[2] and d.flag()
        sizes = np.array(x[1:3] if is_short else x, np.int32)
        return Case(kind, [Fixed(sizes), d.numbers(kernel), d.numbers(y)], attributes)
    return Case(kind, [d.numbers(x), d.numbers(kernel)], attributes)


@makes("MaxPool", "AvgPool", "MaxPoolGrad", "AvgPoolGrad", "MaxPool3D", "AvgPool3D", "MaxPool3DGrad", "AvgPool3DGrad")
def pool(d: Draw, kind: str) -> Case:
    """Values are whole and often below 0, so that there are ties, and padding with 0 would show."""
    rank, layout = (3, "NDHWC") if "3D" in kind else (2, "NHWC")
    window = [d.number(1, 3) for _ in range(rank)]
    space, made, stride, padding = _windows(d, rank, window)
    batch, channels = d.number(), d.number()
    attributes = {
        "ksize": [1, *window, 1],
        "strides": [1, *[stride] * rank, 1],
        "padding": padding,
        "data_format": layout,
    }
    if kind == "MaxPool" and d.number(0, 4) == 0:  # over channels: these stay whole
        space, stride, attributes = made, 1, attributes | {"ksize": [1, 1, 1, 2], "strides": [1, 1, 1, 2]}
        channels = 2 * channels
    x = d.numbers([batch, *space, channels], "int32").astype(np.float32)
    x = x - 5 if d.flag() else x
    gradient = d.numbers([batch, *made, channels])
    if kind.startswith("Max") and kind.endswith("Grad"):
        y = getattr(tf.raw_ops, kind.removesuffix("Grad"))(input=x, **attributes).numpy()
        return Case(kind, [x, y, gradient], attributes)
    if kind.endswith("Grad"):
        return Case(kind, [Fixed(np.array(x.shape, np.int32)), gradient], attributes)
    return Case(kind, [x], attributes)


@makes("LRN", "LRNGrad")
def local_response(d: Draw, kind: str) -> Case:
    x = d.numbers(d.shape(4, 4))
    attributes = {"depth_radius": d.number(1, 3), "alpha": 0.3}
    if kind == "LRN":
        return Case(kind, [x], attributes)
    return Case(kind, [d.numbers(x.shape), x, tf.raw_ops.LRN(input=x, **attributes).numpy()], attributes)


@makes("ResizeArea", "ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor", "ResizeNearestNeighborGrad")
def resize(d: Draw, kind: str) -> Case:
    size = Fixed(np.array([d.number(), d.number()], np.int32))
    return Case(kind, [d.numbers(d.shape(4, 4)), size], _resizing(d, kind))


@makes("ResizeBilinearGrad", "ResizeBicubicGrad")
def resize_gradient(d: Draw, kind: str) -> Case:
    batch, height, width, channels = d.shape(4, 4)
    inputs = [d.numbers([batch, d.number(), d.number(), channels]), d.numbers([batch, height, width, channels])]
    return Case(kind, inputs, _resizing(d, kind))


def _resizing(d: Draw, kind: str) -> dict[str, Any]:
    return d.pick({}, {"align_corners": True}, {} if kind == "ResizeArea" else {"half_pixel_centers": True})


@makes("SpaceToDepth", "DepthToSpace")
def depth_blocks(d: Draw, kind: str) -> Case:
    batch, height, width, channels = d.shape(4, 4)
    shape = [batch, height, width, channels * 4] if kind == "DepthToSpace" else [batch, height * 2, width * 2, channels]
    return Case(kind, [d.numbers(shape)], {"block_size": 2}, exact=True)


@makes("SpaceToBatchND", "BatchToSpaceND")
def batch_blocks(d: Draw, kind: str) -> Case:
    batch, *space, channels = d.shape(3, 4)
    block = [d.number(1, 2) for _ in space]
    if kind == "BatchToSpaceND":
        shape = [batch * int(np.prod(block)), *space, channels]
    else:
        shape = [batch, *[n * b for n, b in zip(space, block, strict=True)], channels]
    edges = np.zeros([len(space), 2], np.int32)
    return Case(kind, [d.numbers(shape), Fixed(np.array(block, np.int32)), Fixed(edges)], exact=True)


@makes("FusedBatchNormV3")
def batch_norm(d: Draw, kind: str) -> Case:
    shape, trains = d.shape(4, 4), d.flag()
    channels = [shape[-1]]
    mean, variance = d.numbers(channels), np.abs(d.numbers(channels)) + 0.1
    attributes = {"is_training": trains}
    if trains and d.flag():
        mean, variance = d.numbers([0]), d.numbers([0])
    elif trains:
        attributes |= {"exponential_avg_factor": 0.3}
    inputs = [d.numbers(shape) + 3, d.numbers(channels), d.numbers(channels), mean, variance]
    unset = () if trains else (3, 4)  # without oneDNN, an inference leaves its reserves as it finds them
    return Case(kind, inputs, attributes, ignored=(*unset, 5), tolerance=3e-5)


@makes("FusedBatchNormGradV3")
def batch_norm_gradient(d: Draw, kind: str) -> Case:
    shape, trains = d.shape(4, 4), d.flag()
    channels = [shape[-1]]
    x = d.numbers(shape)
    variance = np.abs(d.numbers(channels)) + 0.1
    inputs = [d.numbers(shape), x, d.numbers(channels), d.numbers(channels), variance, d.numbers([0])]
    return Case(kind, inputs, {"is_training": trains}, ignored=(3, 4), tolerance=3e-5)
