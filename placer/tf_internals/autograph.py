"""AutoGraph: which functions it converts, and what it calls in the place of Python's builtins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, MethodType
from typing import Any

from tensorflow.python.autograph.impl import api as autograph_api
from tensorflow.python.autograph.operators import control_flow, py_builtins
from tensorflow.python.eager.polymorphic_function import tf_method_target


def compiles_for_xla(function: Any) -> bool:
    """Whether a tf.function was made with jit_compile=True; no other function was."""
    return bool(getattr(function, "_jit_compile", None))


def uses_autograph(function: Any) -> bool:
    """Whether a tf.function is converted by AutoGraph."""
    return bool(getattr(function, "_autograph", True))


def python_function(function: Any) -> Any:
    """The Python function of a tf.function; None for any other. Where it is a method, it is bound to its object, which
    TensorFlow knows by a weak reference.
    """
    python = getattr(function, "python_function", None)
    bound: Any = getattr(python, "__original_wrapped__", None)  # also once it was traced
    target = getattr(bound, "__self__", None)
    if isinstance(target, tf_method_target.TfMethodTarget) and target.target is not None:
        return MethodType(bound.__func__, target.target)
    return python


def is_converted(code: Any) -> bool:
    """Whether AutoGraph has converted a function of this code before, called by another one, so that it reads its
    source no more.
    """
    return any(not how.user_requested for how in autograph_api._TRANSPILER._cache._cache.get(code, ()))


def as_tensorflows_own(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which AutoGraph calls as it is, and goes on to convert what that calls."""
    return autograph_api.autograph_artifact(function)  # type: ignore[no-any-return]


def autograph_overloads() -> dict[str, Callable[..., Any]]:
    """What AutoGraph calls in the place of Python's builtins, by their names: the dict itself."""
    found: dict[str, Callable[..., Any]] = py_builtins.BUILTIN_FUNCTIONS_MAP
    return found


@contextmanager
def autograph_calls(instead: Mapping[Any, Callable[..., Any]]) -> Iterator[None]:
    """Within the block, AutoGraph calls these in the place of Python's builtins, of which it replaces no others."""
    known, overloads = py_builtins.SUPPORTED_BUILTINS, py_builtins.BUILTIN_FUNCTIONS_MAP
    overloads.update({asked.__name__: own for asked, own in instead.items()})
    py_builtins.SUPPORTED_BUILTINS = (*known, *instead)
    try:
        yield
    finally:
        py_builtins.SUPPORTED_BUILTINS = known
        overloads.update({asked.__name__: asked for asked in instead})  # another thread may be between the two


def managed_names(frame: FrameType) -> tuple[str, ...]:
    """The names that AutoGraph itself sets for the branch or loop that it makes in this frame."""
    if frame.f_globals.get("__name__") != control_flow.__name__:
        return ()
    return tuple(map(str, frame.f_locals.get("symbol_names", ())))


def carried(frame: FrameType) -> list[tuple[str, Any]] | None:
    """The names and first values of what AutoGraph carries through the While that it makes in this frame, those of the
    program last; None where it makes none.
    """
    if frame.f_globals.get("__name__") != control_flow.__name__ or frame.f_code.co_name != "_tf_while_stmt":
        return None
    names, values = frame.f_locals.get("symbol_names", ()), frame.f_locals.get("init_vars", ())
    return list(zip(map(str, names), values, strict=False))
