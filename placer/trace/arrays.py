"""NumPy arrays among a call's arguments, and the tensors that TensorFlow makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from placer.errors import BadInputError, one_line

USUAL = (tf.bool, tf.uint8, tf.int32, tf.int64, tf.float16, tf.float32, tf.float64)
NUMERIC = {np.dtype(one.as_numpy_dtype): one for one in USUAL}
"""Type of an array -> type of its tensor, for the types that are usual."""


def converted(array: Any, dtype: tf.DType | None = None) -> Any:
    """The tensor of an array. dtype: of the tensor; None = as TensorFlow chooses. Raises BadInputError if TensorFlow
    makes no tensor of the array.
    """
    try:
        return tf.convert_to_tensor(array, dtype)
    except (TypeError, ValueError) as error:
        raise BadInputError(f"TensorFlow makes no tensor of an argument: {one_line(str(error))}") from error


def unread(array: Any) -> Any:
    """A NumPy array as it is, if its type is in NUMERIC, because `spec_of` then gives what a signature needs to know of
    its tensor; else the array's tensor.
    """
    return array if type(array) is np.ndarray and array.dtype in NUMERIC else converted(array)


def spec_of(array: np.ndarray[Any, Any]) -> tuple[tf.DType, tf.TensorShape]:
    """The type and the shape that the tensor of an array has; only for arrays that `unread` returns as they are."""
    return NUMERIC[array.dtype], tf.TensorShape(array.shape)


def as_tensors(flat: Sequence[Any]) -> list[Any]:
    """The flat tensors of a call, with tensors in place of the arrays that `unread` returned as they are."""
    return [converted(one) if type(one) is np.ndarray else one for one in flat]


def bits(tensor: tf.Tensor) -> Any:
    """A key of a tensor's values, which is equal only for the same bits."""
    array = np.asarray(tensor.numpy())
    return array.tolist() if array.dtype == object else array.tobytes()  # NaN equals itself
