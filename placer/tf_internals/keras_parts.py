"""What Keras does with a step, besides its layers: train functions, what it ties to tensors, its settings."""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any

import tensorflow as tf

KERAS_TIES = {"mask": "_keras_mask", "logits": "_keras_logits"}  # attributes of tensors
OF_TENSORFLOW = ("_parent_trackable", "_name", "_unique_id", "_is_zeros_tensor")  # what TensorFlow puts on tensors


def has_keras_train_function(model: Any) -> bool:
    """Whether Keras itself makes the function that `fit` calls for each batch, from the model's `train_step`."""
    for name in ("make_train_function", "_make_function"):
        if name in vars(model) or getattr(type(model), name, None) is not getattr(_keras_model(), name):
            return False
    return model.train_function is None or _step_of_keras(model.train_function) == model.train_step


def is_made_otherwise(train_function: Any) -> bool:
    """Whether the steps of a train_function that Keras made run eagerly or are compiled by XLA; False for None."""
    if train_function is None:
        return False
    functions = [held for held in _within(train_function).values() if hasattr(type(held), "python_function")]
    return not functions or any(function._jit_compile for function in functions)


def _keras_model() -> Any:
    """The class keras.Model; not tf.keras.Model, which may be that of an older Keras."""
    import keras  # slow to import

    return keras.Model


def _step_of_keras(train_function: Any) -> Any:
    """The step that a train_function runs, if Keras made the train_function; None for any other function."""
    made_by_keras = getattr(train_function, "__code__", None) in _keras_model()._make_function.__code__.co_consts
    return _within(train_function).get("step_function") if made_by_keras else None


def _within(function: Any) -> dict[str, Any]:
    """What a function of Keras holds in its closure, by name, and what the functions in the closure hold in theirs."""
    found: dict[str, Any] = {}
    left, seen = [function], set()
    while left:
        one = left.pop()
        if not isinstance(one, FunctionType) or id(one) in seen:
            continue
        seen.add(id(one))
        cells = zip(one.__code__.co_freevars, one.__closure__ or (), strict=True)
        held = {name: cell.cell_contents for name, cell in cells}
        found = {**held, **found}
        left += [getattr(inner, "python_function", inner) for inner in held.values()]
    return found


def keras_functions() -> dict[str, tuple[Any, str]]:
    """Functions of Keras that compute differently while a step is traced (placer/trace/eager/keras_functions.py): kind
    -> (module, name). Empty if Keras is not imported.
    """
    found = {
        "logits": ("keras.src.backend.tensorflow.nn", "_get_logits"),
        "mean": ("keras.src.losses.loss", "reduce_values"),
        "max": ("keras.src.backend.tensorflow.numpy", "max"),
        "min": ("keras.src.backend.tensorflow.numpy", "min"),
    }
    return {what: (sys.modules[module], name) for what, (module, name) in found.items() if module in sys.modules}


def tied_by_keras(tensor: Any) -> dict[str, Any]:
    """What Keras tied to a tensor: its "mask", and the "logits" behind it."""
    held = vars(tensor)  # asking a tensor for an attribute that it lacks is slow, and most have none
    found = {kind: held.get(name) for kind, name in KERAS_TIES.items()} if held else {}
    return {kind: tied for kind, tied in found.items() if isinstance(tied, tf.Tensor)}


def tied_by_program(tensor: Any) -> str | None:
    """The first attribute of a tensor, or composite tensor, that the program put on it; None if there is none."""
    held = vars(tensor)
    if not held:  # the usual case; this runs at each call of a plain step
        return None
    not_own = "_keras_" if isinstance(tensor, tf.Tensor) else "_"  # composite tensors keep their parts there
    return next((name for name in held if not name.startswith(not_own) and name not in OF_TENSORFLOW), None)


def tie_by_keras(tensor: Any, kind: str, tied: Any) -> None:
    """Tie `tied` to a tensor as Keras does. kind: as in `tied_by_keras`."""
    setattr(tensor, KERAS_TIES[kind], tied)


def keras_settings() -> tuple[Any, Any]:
    """(dtype policy, flash attention) of this thread: what was set with keras.config.set_dtype_policy (or by Keras
    itself) and with enable_flash_attention; None for what was not set yet.
    """
    held = sys.modules["keras.src.backend.common.global_state"].GLOBAL_STATE_TRACKER  # read before each call
    return getattr(held, "dtype_policy", None), getattr(held, "flash_attention", None)
