"""NumPy's arrays among a call's arguments, and the tensors that TensorFlow makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from placer.errors import BadInputError, one_line

USUAL = (tf.bool, tf.uint8, tf.int32, tf.int64, tf.float16, tf.float32, tf.float64)
NUMERIC = {np.dtype(one.as_numpy_dtype): one for one in USUAL}
"""By the type of an array, that of its tensor."""


def converted(array: Any, dtype: tf.DType | None = None) -> Any:
    """The tensor of an array. Raises BadInputError where TensorFlow makes none."""
    try:
        return tf.convert_to_tensor(array, dtype)
    except (TypeError, ValueError) as error:
        raise BadInputError(f"TensorFlow makes no tensor of an argument: {one_line(str(error))}") from error


def unread(array: Any) -> Any:
    """An array as it is, where `spec_of` tells of its tensor what a signature needs; else the tensor."""
    return array if type(array) is np.ndarray and array.dtype in NUMERIC else converted(array)


def spec_of(array: np.ndarray[Any, Any]) -> tuple[tf.DType, tf.TensorShape]:
    """The type and the shape of the tensor of an array that `unread` left as it is."""
    return NUMERIC[array.dtype], tf.TensorShape(array.shape)


def as_tensors(flat: Sequence[Any]) -> list[Any]:
    """Tensors, and the tensors of arrays that `unread` left as they are."""
    return [converted(one) if type(one) is np.ndarray else one for one in flat]


def bits(tensor: tf.Tensor) -> Any:
    """What tells a tensor's values apart, to the bit."""
    array = np.asarray(tensor.numpy())
    return array.tolist() if array.dtype == object else array.tobytes()  # NaN equals itself
