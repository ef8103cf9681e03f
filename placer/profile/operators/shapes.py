"""Probes of the same op at other batch and channel sizes, so that operator models learn how time grows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from placer.profile.operators.probes import Feed, Probe, reshaped

# One text per input, one letter per axis: N batch, C inner channels, O outer channels. After "=" the letters belong
# to the values of a constant shape.
LETTERS = {
    "Conv2D": ("N..C", "..CO"),
    "_FusedConv2D": ("N..C", "..CO"),
    "Conv2DBackpropInput": ("=N..C", "..CO", "N..O"),
    "Conv2DBackpropFilter": ("N..C", "=..CO", "N..O"),
    "DepthwiseConv2dNative": ("N..C", "..C."),
    "_FusedDepthwiseConv2dNative": ("N..C", "..C."),
    "DepthwiseConv2dNativeBackpropInput": ("=N..C", "..C.", "N..C"),
    "DepthwiseConv2dNativeBackpropFilter": ("N..C", "=..C.", "N..C"),
    "AvgPoolGrad": ("=N..C", "N..C"),
    "SparseSoftmaxCrossEntropyWithLogits": ("N.", "N"),
}
# Types whose inputs are aligned at the last axis: N is the first axis of the largest rank, C the last.
ALIGNED = frozenset(
    {
        "Add", "AddV2", "AddN", "Sub", "Mul", "RealDiv", "DivNoNan", "Maximum", "Minimum", "Pow", "SquaredDifference",
        "Square", "Sqrt", "Rsqrt", "RsqrtGrad", "SqrtGrad", "Exp", "Log", "Neg", "Sigmoid", "SigmoidGrad", "Tanh",
        "TanhGrad", "Relu", "ReluGrad", "Relu6", "Relu6Grad", "Erf", "Erfc", "Cast", "SelectV2", "Greater",
        "GreaterEqual", "Less", "LessEqual", "LogicalAnd", "Sum", "Mean", "Max", "BiasAdd", "BiasAddGrad", "MaxPool",
        "AvgPool", "MaxPoolGrad", "FusedBatchNormV3", "FusedBatchNormGradV3", "Softmax", "LogSoftmax", "LRN", "LRNGrad",
        "SoftmaxCrossEntropyWithLogits", "Selu", "SeluGrad", "Elu", "EluGrad",
    }
)  # fmt: skip
SCALES = (("N", 0.5), ("N", 2.0), ("C", 0.75), ("C", 1.5), ("O", 0.75), ("O", 1.5))


def rescaled(probe: Probe, letter: str, factor: float) -> Probe | None:
    """The probe with every axis of that letter `factor` times as long; None if that changes nothing or is refused."""
    if probe.operator.attributes.get("data_format", "NHWC") != "NHWC":
        return None
    letters = _letters(probe)
    feeds = [_scaled(feed, text, letter, factor) for feed, text in zip(probe.feeds, letters, strict=True)]
    if all(new is old for new, old in zip(feeds, probe.feeds, strict=True)):
        return None
    return reshaped(probe, feeds)


def _letters(probe: Probe) -> Sequence[str]:
    kind, feeds = probe.node.op, probe.feeds
    if kind in LETTERS:
        named = LETTERS[kind]
        return [*named, *("O" if len(f.shape) == 1 else "" for f in feeds[len(named) :])]
    if kind in ("MatMul", "_FusedMatMul"):
        a, b = probe.node.attr["transpose_a"].b, probe.node.attr["transpose_b"].b
        return ["CN" if a else "NC", "OC" if b else "CO", *("O" * len(f.shape) for f in feeds[2:])]
    if kind in ("BatchMatMulV2", "BatchMatMulV3"):
        return ["N" + "." * (len(f.shape) - 1) for f in feeds]
    return _aligned(feeds) if kind in ALIGNED else [""] * len(feeds)


def _aligned(feeds: Sequence[Feed]) -> list[str]:
    """Right-aligned letters of the inputs that are data; an axis of length 1 is broadcast and stays."""
    rank = max((len(f.shape) for f in feeds if f.constant is None), default=0)
    whole = "N" + "." * (rank - 2) + "C" if rank > 1 else "C" * rank
    texts = []
    for feed in feeds:
        text = "" if feed.constant is not None else whole[rank - len(feed.shape) :]
        texts.append("".join("." if dim == 1 else c for c, dim in zip(text, feed.shape, strict=False)))
    return texts


def _scaled(feed: Feed, text: str, letter: str, factor: float) -> Feed:
    if letter not in text:
        return feed
    if text.startswith("="):
        values = tf.make_ndarray(feed.constant)
        sizes = [_size(int(d), c == letter, factor) for d, c in zip(values, text[1:], strict=True)]
        return feed._replace(constant=tf.make_tensor_proto(np.asarray(sizes, values.dtype)))
    shape = tuple(_size(d, c == letter, factor) for d, c in zip(feed.shape, text, strict=True))
    return feed if shape == feed.shape else feed._replace(shape=shape)


def _size(dim: int, scale: bool, factor: float) -> int:
    return max(1, round(dim * factor)) if scale and dim else dim
