"""AutoGraph: which functions it converts, and what it calls instead of Python's builtins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, MethodType
from typing import Any

from tensorflow.python.autograph.impl import api as autograph_api
from tensorflow.python.autograph.operators import control_flow, py_builtins
from tensorflow.python.eager.polymorphic_function import tf_method_target


def compiles_for_xla(function: Any) -> bool:
    """Whether a function is a tf.function made with jit_compile=True."""
    return bool(getattr(function, "_jit_compile", None))


def uses_autograph(function: Any) -> bool:
    """Whether a tf.function is converted by AutoGraph."""
    return bool(getattr(function, "_autograph", True))


def python_function(function: Any) -> Any:
    """The Python function of a tf.function; None for other functions. A method is returned bound to its object, which
    TensorFlow holds by a weak reference only.
    """
    python = getattr(function, "python_function", None)
    bound: Any = getattr(python, "__original_wrapped__", None)  # set before a trace and after it
    target = getattr(bound, "__self__", None)
    if isinstance(target, tf_method_target.TfMethodTarget) and target.target is not None:
        return MethodType(bound.__func__, target.target)
    return python


def is_converted(code: Any) -> bool:
    """Whether AutoGraph has already converted a function with this code, because another function called it; AutoGraph
    does not read its source again.
    """
    return any(not how.user_requested for how in autograph_api._TRANSPILER._cache._cache.get(code, ()))


def as_tensorflows_own(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function so that AutoGraph calls it unconverted, but still converts the functions that it calls."""
    return autograph_api.autograph_artifact(function)  # type: ignore[no-any-return]


def autograph_overloads() -> dict[str, Callable[..., Any]]:
    """AutoGraph's own dict: name of a Python builtin -> function that AutoGraph calls instead."""
    found: dict[str, Callable[..., Any]] = py_builtins.BUILTIN_FUNCTIONS_MAP
    return found


@contextmanager
def autograph_calls(instead: Mapping[Any, Callable[..., Any]]) -> Iterator[None]:
    """Within the block, AutoGraph also replaces the builtins in `instead`. instead: builtin that AutoGraph does not
    replace by itself -> function that it calls instead.
    """
    known, overloads = py_builtins.SUPPORTED_BUILTINS, py_builtins.BUILTIN_FUNCTIONS_MAP
    overloads.update({asked.__name__: own for asked, own in instead.items()})
    py_builtins.SUPPORTED_BUILTINS = (*known, *instead)
    try:
        yield
    finally:
        py_builtins.SUPPORTED_BUILTINS = known
        overloads.update({asked.__name__: asked for asked in instead})  # a thread may be between check and look-up


def managed_names(frame: FrameType) -> tuple[str, ...]:
    """The names that AutoGraph sets for the branch or loop that it makes in this frame; empty for other frames."""
    if frame.f_globals.get("__name__") != control_flow.__name__:
        return ()
    return tuple(map(str, frame.f_locals.get("symbol_names", ())))


def carried(frame: FrameType) -> list[tuple[str, Any]] | None:
    """(name, first value) of each variable that AutoGraph carries through the While that it makes in this frame, the
    program's own variables last; None if it makes no While here.
    """
    if frame.f_globals.get("__name__") != control_flow.__name__ or frame.f_code.co_name != "_tf_while_stmt":
        return None
    names, values = frame.f_locals.get("symbol_names", ()), frame.f_locals.get("init_vars", ())
    return list(zip(map(str, names), values, strict=False))
