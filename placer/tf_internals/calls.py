"""Calls of concrete functions, and hooks that run around each call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context as eager_context
from tensorflow.python.eager.polymorphic_function import concrete_function

_call_flat = concrete_function.ConcreteFunction._call_flat


def is_recorded() -> bool:
    """Whether ops executed now are recorded: in a function being traced, or on a gradient tape."""
    return not pywrap_tfe.TFE_Py_TapeSetIsEmpty() or not eager_context.executing_eagerly()


def call_concrete(concrete: Any, inputs: Sequence[Any], captured: Sequence[Any] | None = None) -> Any:
    """Call a concrete function with flat inputs; return its result. captured: tensors to use instead of those that the
    function captured; such a call is not reported to the hook.
    """
    if captured is None:
        return concrete._call_flat(list(inputs), concrete.captured_inputs)
    return _call_flat(concrete, list(inputs), list(captured))


Around = Callable[[Any, Sequence[Any]], tuple[Sequence[Any], Callable[[], None] | None]]


def around_function_calls(hook: Around | None) -> None:
    """Call `hook` with each concrete function and its captured inputs right before the function runs; None removes the
    hook. The hook returns the captured inputs to use instead, and a function to call right afterwards, or None.
    """
    with _patching:
        _patched.hook = hook
        _patch()


@contextmanager
def recorded_calls() -> Iterator[list[tuple[Any, list[Any]]]]:
    """Within the block, the list receives this thread's calls of concrete functions: (function, its flat inputs)."""
    calls: list[tuple[Any, list[Any]]] = []
    thread = threading.get_ident()
    with _patching:
        _patched.recorders[thread] = calls
        _patch()
    try:
        yield calls
    finally:
        with _patching:
            del _patched.recorders[thread]
            _patch()


class _Patched:
    """The hook and the recorders that the patched method serves."""

    def __init__(self) -> None:
        self.hook: Around | None = None
        self.recorders: dict[int, list[tuple[Any, list[Any]]]] = {}  # by thread


_patched, _patching = _Patched(), threading.Lock()


def _patch() -> None:
    """Replace the method as long as there is a hook or a recorder; else restore it."""
    needed = _patched.hook is not None or _patched.recorders
    concrete_function.ConcreteFunction._call_flat = _hooked_call_flat if needed else _call_flat


def _hooked_call_flat(self: Any, tensor_inputs: Any, captured_inputs: Any) -> Any:
    recorder = _patched.recorders.get(threading.get_ident()) if _patched.recorders else None
    if recorder is not None:
        recorder.append((self, list(tensor_inputs)))
    hook = _patched.hook
    if hook is None:
        return _call_flat(self, tensor_inputs, captured_inputs)
    captured_inputs, afterwards = hook(self, captured_inputs)
    if afterwards is None:
        return _call_flat(self, tensor_inputs, captured_inputs)
    try:
        return _call_flat(self, tensor_inputs, captured_inputs)
    finally:
        afterwards()
