"""The types of rules: a Way says how an op is divided along a factor, and what that means for each of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from placer.trace.op_counts.flops import dims


@dataclass(frozen=True)
class Cut:
    """A tensor is cut along `axis`. If a part of the factor is [a, b), that of the tensor is [a x unit, b x unit)."""

    axis: int
    unit: int = 1


@dataclass(frozen=True)
class Joined:
    """Each part makes a whole tensor, and these tensors are combined element by element: "sum", "max" or "min".

    mean: each part's tensor is a mean over its share of the factor, and is weighted by that share.
    """

    by: str = "sum"
    mean: bool = False


@dataclass(frozen=True)
class Own:
    """Each part has its own value, which only an op can use that also takes it as Own and is divided alike.

    what: the meaning of the value; a value of another meaning cannot replace it.
    """

    what: str = ""


@dataclass(frozen=True)
class Local:
    """Each part has its own estimate of the whole tensor, from its own share of the examples, and works with that. The
    whole tensor is the mean of all estimates, weighted by these shares. scaled: a part makes its share of a sum over
    the examples, which has to be divided by its share of the examples to become an estimate.
    """

    scaled: bool = False


def may_be_averaged(dtype: tf.DType) -> bool:
    """Whether a weighted mean of numbers of this type is one. A share of an integer is cut off, and flags have none."""
    return bool(dtype.is_floating or dtype.is_complex)


@dataclass(frozen=True)
class Copied:
    """Each part makes the whole tensor, and takes its own copy."""


@dataclass(frozen=True)
class Size:
    """A size in a constant input: data input `argument` has the factor's extent x unit at index `position`."""

    argument: int
    position: int
    unit: int = 1


@dataclass(frozen=True)
class Exchange:
    """The data that parts exchange before they can finish. sent_bytes: from each part to every other part.

    write: (op, inputs of each part, extent of each part) -> the outputs of each part, all of them tensors. It adds ops
    to the current graph, each in the `part_scope` of its part.
    """

    sent_bytes: int
    write: Callable[[Any, Sequence[Sequence[Any]], Sequence[int]], Sequence[Sequence[Any]]]


def part_scope(i: int) -> Any:
    """Return the name scope of part i, which may be entered again."""
    return tf.name_scope(f"part_{i}/")


@dataclass(frozen=True)
class Way:
    """One way to divide an op into parts, each of which does what the op does on its share of one factor.

    inputs, outputs: one entry per tensor; None = each part has the whole tensor. An output that every part makes whole
    is taken from the first part. extent: that of the factor; parts divide range(extent); 0 = there is no factor, and
    each part does the op on its own estimates. sizes: the sizes to rewrite in constant inputs. least: the smallest
    share of a part; with a smaller one the op would compute something different. exchange: the exchanged data, if a
    part is not simply the op on its share.
    """

    inputs: tuple[Cut | Own | None, ...]
    outputs: tuple[Cut | Joined | Own | Copied | Local | None, ...]
    extent: int
    sizes: tuple[Size, ...] = ()
    least: int = 1
    exchange: Exchange | None = None


Ways = dict[str, Way]
"""Name of a factor in plans -> the way to divide the op along it."""
Rule = Callable[[Any], Ways]
"""A tf.Operation with known shapes -> its ways. Raises ValueError if a shape that the rule needs is unknown."""

BATCH, CHANNEL = "batch", "channel"
"""The names of two factors in convolutions, pooling, normalization and losses; the batch is axis 0."""
SUM = Joined("sum")


def axis_name(axis: int) -> str:
    """Return the name of a factor that is simply an axis, mostly of the op's output."""
    return f"axis{axis}"


def input_dims(op: Any) -> list[list[int]]:
    """Return the shape of each data input. Raises ValueError if one is unknown."""
    return [dims(tensor) for tensor in op.inputs]


def channel_axis(op: Any, rank: int) -> int:
    """Return the axis of the channels, by `data_format`. Raises ValueError if they are in two axes (NCHW_VECT_C)."""
    layout = op.get_attr("data_format").decode()
    if "_" in layout:
        raise ValueError("channels in two axes")
    return 1 if layout.startswith("NC") else rank - 1


SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank"})
"""Op types whose outputs follow from static shapes, so that they need no input tensor."""


def known_shapes(op: Any) -> list[np.ndarray[Any, Any]] | None:
    """Return the values of the outputs of an op in SHAPES; None for other ops, and if a shape is unknown."""
    if op.type not in SHAPES or not all(t.shape.is_fully_defined() for t in op.inputs):
        return None
    dtype = op.outputs[0].dtype.as_numpy_dtype
    if op.type in ("Shape", "ShapeN"):
        return [np.array(t.shape.as_list(), dtype) for t in op.inputs]
    (taken,) = op.inputs
    return [np.array(taken.shape.rank if op.type == "Rank" else taken.shape.num_elements(), dtype)]


def static(op: Any, i: int) -> np.ndarray[Any, Any]:
    """Return the value of data input i, which has to be constant. Raises ValueError if it is unknown."""
    tensor = op.inputs[i]
    shapes = known_shapes(tensor.op)
    value = tf.get_static_value(tensor) if shapes is None else shapes[tensor.value_index]
    if value is None:
        raise ValueError("not constant")
    return np.asarray(value)
