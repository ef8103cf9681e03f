"""Rules for convolutions over two or three axes, and for the gradients of their inputs and filters.

x is [batch, space..., in] or [batch, in, space...], by `data_format`; y is the same with out channels; the filter is
[window..., in, out]. Space is never divided, because the parts would need each other's edges.

The forward op and its two gradients relate the same three tensors, so that one factor says how each is cut. If an op's
output does not have the factor, it is a sum over it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from placer.splits.rules.way import BATCH, CHANNEL, SUM, Cut, Size, Way, Ways, channel_axis
from placer.trace.op_counts.flops import dims

OUT, IN, GROUP = "out", "in", "group"


@dataclass(frozen=True)
class _Factor:
    """How a factor cuts the three tensors; None = the tensor does not have the factor."""

    x: Cut | None
    kernel: Cut | None
    y: Cut | None
    extent: int


def convolution(op: Any) -> Ways:
    """Conv2D, Conv3D and DepthwiseConv2dNative: x, filter -> y."""
    found = _factors(op, dims(op.inputs[0]), dims(op.inputs[1]))
    return {name: Way((f.x, f.kernel), (f.y or SUM,), f.extent) for name, f in found.items()}


def input_gradient(op: Any) -> Ways:
    """Sizes of x, filter, gradient of y -> gradient of x. A transposed convolution is such an op, too.

    Conv2DBackpropInput also takes the sizes of height and width alone; then no size has to be rewritten.
    """
    out = dims(op.outputs[0])
    is_sized = dims(op.inputs[0]) == [len(out)]
    return {
        name: Way((None, f.kernel, f.y), (f.x or SUM,), f.extent, _sizes(0, f.x) if is_sized else ())
        for name, f in _factors(op, out, dims(op.inputs[1])).items()
    }


def filter_gradient(op: Any) -> Ways:
    """x, sizes of the filter, gradient of y -> gradient of the filter."""
    found = _factors(op, dims(op.inputs[0]), dims(op.outputs[0]))
    return {name: Way((f.x, None, f.y), (f.kernel or SUM,), f.extent, _sizes(1, f.kernel)) for name, f in found.items()}


def _factors(op: Any, x: list[int], kernel: list[int]) -> dict[str, _Factor]:
    channel, rank = channel_axis(op, len(x)), len(x)
    batch = {BATCH: _Factor(Cut(0), None, Cut(0), x[0])}
    *_, taken, made = kernel
    if op.type.startswith("Depthwise"):  # output channel c x made + m comes from input channel c
        return batch | {CHANNEL: _Factor(Cut(channel), Cut(rank - 2), Cut(channel, made), taken)}
    groups = x[channel] // max(taken, 1)
    if groups > 1:  # output channels [g x per_group, (g + 1) x per_group) come from the g-th `taken` input channels
        per_group = made // groups
        of_group = _Factor(Cut(channel, taken), Cut(rank - 1, per_group), Cut(channel, per_group), groups)
        return batch | {GROUP: of_group}
    return batch | {
        OUT: _Factor(None, Cut(rank - 1), Cut(channel), made),
        IN: _Factor(Cut(channel), Cut(rank - 2), None, taken),
    }


def _sizes(argument: int, cut: Cut | None) -> tuple[Size, ...]:
    return () if cut is None else (Size(argument, cut.axis, cut.unit),)
