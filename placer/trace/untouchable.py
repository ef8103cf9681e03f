"""Steps that must run as they are, because of how they were made rather than what they compute."""

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import Any

import tensorflow as tf

from placer import tf_internals


def untouchable_now() -> str | None:
    """Why TensorFlow's current settings forbid placing any step, in words; None if they allow it. Asked for each call,
    because a program may change the settings at any time.
    """
    if tf.config.functions_run_eagerly():
        return "functions are set to run eagerly (tf.config.run_functions_eagerly)"
    if tf_internals.settings.is_deterministic():
        return (
            "ops are set to be deterministic (tf.config.experimental.enable_op_determinism), and a mapping that is "
            "chosen by the clock may round otherwise in each run"
        )
    if (option := tf_internals.settings.rewrites_precision()) is not None:
        return f"TensorFlow is to compute in short floats where it can ({option}), which a placed step would not"
    return None


def untouchable(step: Any) -> str | None:
    """Why a step must not be placed, in words; None if it may.

    Looks at the values that the function closes over, the globals that it uses, and the attributes of the object whose
    method it is, but not inside these values.
    """
    if not tf.executing_eagerly():
        return "it is called while another function is traced"
    if tf.distribute.has_strategy():
        return f"it runs under the distribution strategy {type(tf.distribute.get_strategy()).__name__}"
    if hasattr(type(step), "compute_loss"):
        if getattr(step, "run_eagerly", False):
            return "the model was compiled with run_eagerly=True"
    elif hasattr(type(step), "python_function") and tf_internals.autograph.compiles_for_xla(step):
        return "it is compiled by XLA (jit_compile=True), which ignores devices"
    return next(filter(None, map(_distribution, _within(step))), None)


def _within(step: Any) -> list[Any]:
    """The objects that a step's function refers to."""
    if isinstance(step, functools.partial):
        return [*step.args, *step.keywords.values(), *_within(step.func)]
    function = step.python_function if hasattr(type(step), "python_function") else step
    with contextlib.suppress(Exception):  # whatever an object of the user's raises when it is asked
        function = inspect.unwrap(function)
    owner = _attribute(step, "__self__") or _attribute(function, "__self__")
    found = [step, *(_attribute(owner, "__dict__") or {}).values()]
    function = function.__func__ if inspect.ismethod(function) else function
    if not inspect.isfunction(function):
        return [*found, *(_attribute(function, "__dict__") or {}).values()]
    with contextlib.suppress(ValueError):  # a closure cell is empty
        used = inspect.getclosurevars(function)
        found += [*used.nonlocals.values(), *used.globals.values()]
    return [thing for thing in found if not inspect.ismodule(thing)]


def _distribution(thing: Any) -> str | None:
    """In words, how an object takes part in a distribution strategy; None if it does not."""
    # No strategy's scope is open here, so `get_strategy` returns TensorFlow's default, which distributes nothing.
    if isinstance(thing, tf.distribute.Strategy) and thing is not tf.distribute.get_strategy():
        return f"it uses the distribution strategy {type(thing).__name__}"
    variables = thing if isinstance(thing, (list, tuple)) else [thing, *(_asked(thing, "variables") or ())]
    for variable in variables:
        for held in (variable, _asked(variable, "value")):  # Keras wraps TensorFlow's variable
            if isinstance(held, tf.distribute.DistributedValues):
                return f"its variables are distributed ({type(held).__name__})"
    return None


def _asked(thing: Any, name: str) -> Any:
    found = None if isinstance(thing, type) else _attribute(thing, name)
    return found if name == "value" or isinstance(found, (list, tuple)) else None


def _attribute(thing: Any, name: str) -> Any:
    """An attribute of an arbitrary object; None if it has none, or if a property raises, which may raise anything."""
    try:
        return getattr(thing, name, None)
    except Exception:
        return None
