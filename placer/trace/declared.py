"""The arguments of a tf.function that declares an input signature."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from placer.trace.arrays import converted

BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Declared:
    """The input signature of a tf.function, which turns numbers and arrays into tensors of these types, so that no
    number is a constant.
    """

    dtypes: tuple[tf.DType, ...]
    names: tuple[str, ...]  # of its parameters; empty if they are not known

    @classmethod
    def by(cls, step: Any) -> Declared | None:
        """The signature of a step that declares only tensors; None for any other step."""
        specs = getattr(step, "input_signature", None) if hasattr(type(step), "python_function") else None
        if specs is None or not all(isinstance(spec, tf.TensorSpec) for spec in specs):
            return None
        try:
            found = inspect.signature(step.python_function).parameters.values()
            names = [one.name for one in found if one.kind in BY_POSITION and one.name != "self"]
        except (TypeError, ValueError):
            names = []
        return cls(tuple(spec.dtype for spec in specs), tuple(names[: len(specs)]))

    def given(
        self, args: Sequence[Any], kwargs: Mapping[str, Any] | None
    ) -> tuple[Sequence[Any], Mapping[str, Any] | None]:
        """A call's arguments by position, as tensors of the declared types; unchanged if they do not fit the signature.

        Raises BadInputError if TensorFlow cannot make a tensor of an argument.
        """
        by_name, values = dict(kwargs or {}), list(args)
        for name in self.names[len(args) :]:
            if name not in by_name:
                break
            values.append(by_name.pop(name))
        if by_name or len(values) != len(self.dtypes):
            return args, kwargs
        return tuple(map(_declared, values, self.dtypes)), None


def _declared(value: Any, dtype: tf.DType) -> Any:
    is_other = type(value) is np.ndarray and value.dtype != dtype.as_numpy_dtype
    return converted(value, dtype) if is_other or isinstance(value, (int, float, np.generic)) else value
