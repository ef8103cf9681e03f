"""What a rule says of one op: along which factor it can be divided, and what that means for each of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from placer.trace.op_counts.flops import dims


@dataclass(frozen=True)
class Cut:
    """A tensor is cut along `axis`. Where the factor's parts are [a, b), the tensor's are [a x unit, b x unit)."""

    axis: int
    unit: int = 1


@dataclass(frozen=True)
class Joined:
    """Each part makes a whole tensor, and these are combined element by element: "sum", "max" or "min".

    mean: each part's tensor is a mean over its share of the factor, and counts by that share.
    """

    by: str = "sum"
    mean: bool = False


@dataclass(frozen=True)
class Own:
    """Each part has a value of its own, which only an op that takes it as such and is divided alike understands.

    what: values that mean something else are no substitute.
    """

    what: str = ""


@dataclass(frozen=True)
class Local:
    """Each part has an estimate of the whole tensor, made of its own share of the examples, and goes on with that. The
    whole is the mean of all, weighted by these shares. scaled: what a part makes is its share of a sum over the
    examples, and has to be divided by its share of them to be an estimate.
    """

    scaled: bool = False


@dataclass(frozen=True)
class Copied:
    """Each part makes the whole tensor, and takes its own."""


@dataclass(frozen=True)
class Size:
    """Element `position` of the constant vector that is data input `argument` is the factor's extent x unit."""

    argument: int
    position: int
    unit: int = 1


@dataclass(frozen=True)
class Exchange:
    """What parts tell each other before they can finish. sent_bytes: by each part to every other one.

    write: (op, inputs of each part, extent of each part) -> the outputs of each part, all of them tensors. It adds ops
    to the current graph, in `part_scope` of the part for which they are.
    """

    sent_bytes: int
    write: Callable[[Any, Sequence[Sequence[Any]], Sequence[int]], Sequence[Sequence[Any]]]


def part_scope(i: int) -> Any:
    """The name scope of part i; may be entered again."""
    return tf.name_scope(f"part_{i}/")


@dataclass(frozen=True)
class Way:
    """One way to divide an op into parts of which each does what the op does, on its share of one factor.

    inputs, outputs: one entry per tensor; None = each part has the whole tensor. An output that every part makes whole
    is taken from the first part. extent: of the factor; parts divide range(extent); 0 = there is none, and each part
    does the same on what it has. sizes: what has to be rewritten in constant inputs. least: the smallest share of a
    part; smaller ones would do something else. exchange: where a part is not simply the op on its share.
    """

    inputs: tuple[Cut | Own | None, ...]
    outputs: tuple[Cut | Joined | Own | Copied | Local | None, ...]
    extent: int
    sizes: tuple[Size, ...] = ()
    least: int = 1
    exchange: Exchange | None = None


Ways = dict[str, Way]
"""Name of a factor, as plans write it -> the way to divide the op along it."""
Rule = Callable[[Any], Ways]
"""A tf.Operation with known shapes -> its ways. Raises ValueError where a shape that it needs is not known."""

BATCH, CHANNEL = "batch", "channel"
"""The names of two factors in convolutions, pooling, normalization and losses; the batch is axis 0."""
SUM = Joined("sum")


def axis_name(axis: int) -> str:
    """The name of a factor that is no more than an axis of the op's output."""
    return f"axis{axis}"


def input_dims(op: Any) -> list[list[int]]:
    """The shape of each data input. Raises ValueError where one is not known."""
    return [dims(tensor) for tensor in op.inputs]


def channel_axis(op: Any, rank: int) -> int:
    """The axis of the channels, by `data_format`. Raises ValueError where they are in two axes (NCHW_VECT_C)."""
    layout = op.get_attr("data_format").decode()
    if "_" in layout:
        raise ValueError("channels in two axes")
    return 1 if layout.startswith("NC") else rank - 1


SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank"})
"""Types whose values follow from static shapes, so that they need no tensor."""


def known_shapes(op: Any) -> list[np.ndarray[Any, Any]] | None:
    """The values of the outputs of an op in SHAPES; None for other ops, and where a shape is not known."""
    if op.type not in SHAPES or not all(t.shape.is_fully_defined() for t in op.inputs):
        return None
    dtype = op.outputs[0].dtype.as_numpy_dtype
    if op.type in ("Shape", "ShapeN"):
        return [np.array(t.shape.as_list(), dtype) for t in op.inputs]
    (taken,) = op.inputs
    return [np.array(taken.shape.rank if op.type == "Rank" else taken.shape.num_elements(), dtype)]


def static(op: Any, i: int) -> np.ndarray[Any, Any]:
    """The value of data input i, which has to be constant. Raises ValueError where it is not known."""
    tensor = op.inputs[i]
    shapes = known_shapes(tensor.op)
    value = tf.get_static_value(tensor) if shapes is None else shapes[tensor.value_index]
    if value is None:
        raise ValueError("not constant")
    return np.asarray(value)
