"""Variables, their handles and their values."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.ops import resource_variable_ops

RESOURCE_VARIABLE: type = resource_variable_ops.BaseResourceVariable
UNREAD_VARIABLE: type = resource_variable_ops._UnreadVariable  # what `assign` returns: another object for it
_captured_inputs = concrete_function.ConcreteFunction.captured_inputs
_former_handles: dict[int, tuple[weakref.ref[Any], Any]] = {}  # id -> (a replaced handle, the current one)


def is_eager(tensor: Any) -> bool:
    """Whether a tensor has a value, rather than being a node of a graph."""
    return isinstance(tensor, tf.Tensor) and hasattr(tensor, "numpy")


def is_initialized(handle: Any) -> bool:
    """Whether the variable behind a handle of this process has a value."""
    return bool(tf.raw_ops.VarIsInitializedOp(resource=handle))


def read_variable(handle: Any, dtype: tf.DType) -> Any:
    """The value of the variable behind a handle."""
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)


def handle_of(variable: Any) -> Any:
    """The handle of a variable, read without notifying its watcher (placer/train/variables/hooks.py)."""
    handle = vars(variable).get("_handle")
    return variable.handle if handle is None else handle  # variables of other libraries keep it elsewhere


def array_of(variable: Any) -> Any:
    """The value of a variable as a read-only array, or as a scalar. On this process's CPU the array is the tensor's own
    memory, which `numpy()` would copy: 0.9 s for 400 MB.
    """
    value = variable.read_value()._numpy()
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    return value


def bytes_of(tensor: Any) -> int:
    """Bytes of an eager tensor. This runs in each step, so it does not use the shape, which is built at each access."""
    return int(tensor._num_elements() * tensor.dtype.size)


def replace_handles(pairs: Sequence[tuple[Any, Any]]) -> None:
    """Remember replaced handles, because functions traced before still hold them, even if no Python object of the
    variable is left. From now on, concrete functions give the current handles as their captures, by which SavedModel
    finds variables. pairs: (replaced handle, current handle).
    """
    now = {id(former): fresh for former, fresh in pairs}
    for key, (gone, last) in list(_former_handles.items()):
        if id(last) in now:
            _former_handles[key] = (gone, now[id(last)])
    for former, fresh in pairs:
        _former_handles[id(former)] = (weakref.ref(former, partial(_forget_handle, id(former))), fresh)

    concrete_function.ConcreteFunction.captured_inputs = property(_current_inputs)


def _current_inputs(function: Any) -> list[Any]:
    return [current_handle(captured) for captured in _captured_inputs.fget(function)]


def _forget_handle(key: int, _: Any) -> None:
    _former_handles.pop(key, None)


def current_handle(handle: Any) -> Any:
    """The current handle of the variable that `handle` belongs to; `handle` itself if it was never replaced."""
    former = _former_handles.get(id(handle))
    return former[1] if former is not None and former[0]() is handle else handle


def has_former_handles() -> bool:
    """Whether functions may hold handles that their variables have lost."""
    return bool(_former_handles)


def is_handle_of_variable(handle: Any) -> bool:
    """Whether a resource handle is a variable's: only these tell the shape and type of what they hold."""
    data = getattr(handle, "_handle_data", None)
    return bool(data is not None and data.is_set and data.shape_and_type)


def has_recorded(tape: Any) -> bool:
    """Whether a tape holds a recording for a later `gradient`; it knows variables by the handles that they had then."""
    return tape._tape is not None
