"""Rules for fused batch normalization: by channels, and by examples, for which parts exchange their moments.

x is [batch, space..., channel], or channels come second, by `data_format`; scale, offset and statistics are [channel].
Keras writes batch normalization as reductions and element-wise ops, which need no rule of their own.

In training, the moments are those of all examples. A part computes the moments of its own examples: n_i values per
channel with the mean m_i and the variance v_i. Then each part combines the moments of all parts (Chan et al. 1979):

    m = sum n_i m_i / n        v = sum n_i (v_i + (m_i - m)^2) / n

This loses no digits if the mean is large, while E[x^2] - m^2 would.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import tensorflow as tf

from placer.splits.plan import LOCAL
from placer.splits.rules.way import (
    BATCH,
    CHANNEL,
    SUM,
    Cut,
    Exchange,
    Joined,
    Own,
    Way,
    Ways,
    channel_axis,
    part_scope,
)  # fmt: skip
from placer.trace.op_counts.flops import dims

FORWARD, GRADIENT = "FusedBatchNormV3", "FusedBatchNormGradV3"


def batch_norm(op: Any) -> Ways:
    """FusedBatchNormV3: x, scale, offset, mean, variance -> y, batch mean, batch variance, reserves 1 to 3.

    The reserves are for the gradient. In training, mean and variance may be empty.
    """
    shape, trains = dims(op.inputs[0]), op.get_attr("is_training")
    channel = channel_axis(op, len(shape))
    if trains and not _is_plain(op):
        return {}
    vectors = [Cut(0) if dims(t) == [shape[channel]] else None for t in op.inputs[1:]]
    made = (Cut(channel), Cut(0), Cut(0), Cut(0), Cut(0), None)
    ways = {CHANNEL: Way((Cut(channel), *vectors), made, shape[channel])}
    whole = (None,) * 4
    if not trains:
        ways[BATCH] = Way((Cut(0), *whole), (Cut(0), None, None, None, None, None), shape[0])
    elif _merges(op) and _only_for_gradient(op):
        outputs = (Cut(0), None, None, Own(), Own(), Own())
        ways[BATCH] = Way((Cut(0), *whole), outputs, shape[0], least=_least(op), exchange=_exchange(op, _normalized))
    return ways


def batch_norm_gradient(op: Any) -> Ways:
    """FusedBatchNormGradV3: gradient of y, x, scale, reserves 1 to 3 -> gradients of x, scale and offset, two empty.

    By examples: if the statistics were given, they are not a function of x, and nothing is exchanged. In training the
    gradient is divided only together with the forward op, because it needs the reserves of the divided forward op.
    """
    shape, trains = dims(op.inputs[0]), op.get_attr("is_training")
    channel = channel_axis(op, len(shape))
    if trains and not _is_plain(op):
        return {}
    taken = (Cut(channel), Cut(channel), Cut(0), Cut(0), Cut(0), None)
    ways = {CHANNEL: Way(taken, (Cut(channel), Cut(0), Cut(0), None, None), shape[channel])}
    if not trains:
        ways[BATCH] = Way((Cut(0), Cut(0), None, None, None, None), (Cut(0), SUM, SUM, None, None), shape[0])
    elif _merges(op):
        inputs, outputs = (Cut(0), Cut(0), None, Own(), Own(), Own()), (Cut(0), None, None, None, None)
        ways[BATCH] = Way(inputs, outputs, shape[0], least=_least(op), exchange=_exchange(op, _gradients))
    return ways


def own_statistics(op: Any) -> Way | None:
    """Return the way to divide a training op by examples so that each part normalises by the moments of its own
    examples. Each part is the op itself. The output statistics are means over the parts. None if the op cannot be
    divided in this way, or if it takes given statistics.
    """
    shape, mean, own = dims(op.inputs[0]), Joined("sum", mean=True), (Own(LOCAL),) * 3
    if not (op.get_attr("is_training") and _is_plain(op)):
        return None
    if op.type == GRADIENT:
        return Way((Cut(0), Cut(0), None, *own), (Cut(0), SUM, SUM, None, None), shape[0], least=_least(op))
    if not _only_for_gradient(op):
        return None
    return Way((Cut(0), *(None,) * 4), (Cut(0), mean, mean, *own), shape[0], least=_least(op))


def _only_for_gradient(op: Any) -> bool:
    """Whether only the gradient takes the reserves."""
    return all(user.type == GRADIENT for t in op.outputs[3:] for user in t.consumers())


def _is_plain(op: Any) -> bool:
    """Whether reserve 3 is empty. For 16-bit numbers cuDNN keeps private data in it, which cannot be cut."""
    return bool(op.inputs[0].dtype == tf.float32)


def _merges(op: Any) -> bool:
    """Whether there are kernels for the gradient with given statistics, which the parts use."""
    return bool(op.get_attr("data_format") == b"NHWC")


def _least(op: Any) -> int:
    """Return the fewest examples of a part. A part needs two values per channel, because the variance of one value is
    0, or NaN on GPUs.
    """
    shape = dims(op.inputs[0])
    others = (n for axis, n in enumerate(shape) if axis not in (0, channel_axis(op, len(shape))))
    return 1 if prod(others) > 1 else 2


def _exchange(op: Any, write: Any) -> Exchange:
    """Return the exchange in which each part sends the others two numbers per channel."""
    *_, channels = dims(op.inputs[0])
    return Exchange(2 * channels * op.inputs[2].dtype.size, write)


def _normalized(op: Any, inputs: Sequence[Sequence[Any]], extents: Sequence[int]) -> list[list[Any]]:
    """Return the outputs of each part. Reserves 1 and 2 are mean and variance of all examples, on every device."""
    counts = _counts(op, extents)
    told, made = [], []
    for i, (x, scale, offset, *_) in enumerate(inputs):
        with part_scope(i):
            none = tf.constant([], scale.dtype)
            fused = tf.raw_ops.FusedBatchNormV3(
                x=x, scale=scale, offset=offset, mean=none, variance=none, epsilon=op.get_attr("epsilon")
            )
            told.append(tf.stack([fused.batch_mean, fused.batch_variance]))
    for i, (x, scale, offset, *old) in enumerate(inputs):
        with part_scope(i):
            mean, variance = _merged(told, counts)
            fused = _with_statistics(op, x, scale, offset, mean, variance)
            statistics = _running(op, old, mean, variance, sum(counts))
            made.append([fused.y, *statistics, mean, variance, fused.reserve_space_3])
    return made


def _merged(told: Sequence[Any], counts: Sequence[int]) -> tuple[Any, Any]:
    """Return mean and variance of all values. told: mean and variance of each part, [2, channel]; the variance has the
    divisor n_i - 1.
    """
    means, variances = tf.unstack(tf.stack(told, axis=1))  # each [part, channel]
    n = sum(counts)
    share = tf.constant([[count / n] for count in counts], means.dtype)
    freedom = tf.constant([[max(count - 1, 1) / n] for count in counts], means.dtype)
    mean = tf.reduce_sum(share * means, axis=0)
    apart = share * tf.math.squared_difference(means, mean)
    return mean, tf.reduce_sum(freedom * variances + apart, axis=0)


def _running(op: Any, old: Sequence[Any], mean: Any, variance: Any, count: int) -> list[Any]:
    """Return outputs 1 and 2: the new statistics, or a mixture with the old ones. The variance's divisor is n - 1."""
    factor = op.get_attr("exponential_avg_factor")
    new = [mean, variance * (count / max(count - 1, 1))]
    if factor == 1:
        return new
    return [(1 - factor) * before + factor * now for before, now in zip(old, new, strict=True)]


def _gradients(op: Any, inputs: Sequence[Sequence[Any]], extents: Sequence[int]) -> list[list[Any]]:
    """Return the outputs of each part. With r = 1 / sqrt(v + epsilon) and sums over all examples

        d_offset = sum dy        d_scale = sum dy (x - m) r
        dx = scale r dy - scale r / n (d_offset + d_scale (x - m) r)

    The op for given statistics computes the first summand of dx and a part's share of the sums. The second summand is
    itself a normalization of x.
    """
    n = sum(_counts(op, extents))
    first, told, made = [], [], []
    for i, (dy, x, scale, mean, variance, rest) in enumerate(inputs):
        with part_scope(i):
            fused = tf.raw_ops.FusedBatchNormGradV3(
                y_backprop=dy, x=x, scale=scale, reserve_space_1=mean, reserve_space_2=variance, reserve_space_3=rest,
                epsilon=op.get_attr("epsilon"), is_training=False,
            )  # fmt: skip
            first.append(fused.x_backprop)
            told.append(tf.stack([fused.scale_backprop, fused.offset_backprop]))
    for i, (_, x, scale, mean, variance, rest) in enumerate(inputs):
        with part_scope(i):
            d_scale, d_offset = tf.unstack(tf.add_n(told))
            each = scale * tf.math.rsqrt(variance + op.get_attr("epsilon")) / n
            second = _with_statistics(op, x, each * d_scale, each * d_offset, mean, variance).y
            made.append([first[i] - second, d_scale, d_offset, rest, rest])
    return made


def _with_statistics(op: Any, x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
    return tf.raw_ops.FusedBatchNormV3(
        x=x, scale=scale, offset=offset, mean=mean, variance=variance,
        epsilon=op.get_attr("epsilon"), is_training=False,
    )  # fmt: skip


def _counts(op: Any, extents: Sequence[int]) -> list[int]:
    """Return the number of values per channel in each part."""
    each = prod(dims(op.inputs[0])[1:-1])
    return [extent * each for extent in extents]
