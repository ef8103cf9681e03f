"""Finds the methods of Keras's callbacks, which save, stop, print and count, that code of a step may call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import FunctionType
from typing import Any

from placer.trace.python.code.bytecode import reads_of
from placer.trace.python.code.paths import UNKNOWN
from placer.trace.python.entered_functions import Entered, reached
from placer.trace.python.impure import MUTATORS
from placer.trace.python.kinds import CALLBACKS, EMPTY, has_base, is_library


def called_of_callback(callbacks: Sequence[tuple[str, Any]], entered: Iterable[Entered]) -> str | None:
    """The first method of Keras's callbacks that code may call, in words ("callbacks.on_epoch_end"); None if there is
    none. callbacks: (name under which code reaches it, callback) of each.
    """
    if not callbacks:
        return None
    own = [one for one in entered if not _is_method_of_keras(one.owner, one.function.__name__)]  # Keras calls the rest
    names = {name for one in own for name in reads_of(one.function.__code__).owners}
    for label, callback in callbacks:
        for name in methods_of_keras(type(callback)):
            if name in names or any(_asks(one, name) for one in own):
                return f"{label}.{name}"
    return None


def calls_callback(called: str) -> str:
    """Why a step that may call a method of a callback is left alone, in words."""
    return f"it calls `{called}` of a Keras callback, which a traced step would do only once; call it after the step"


def methods_of_keras(kind: type) -> list[str]:
    """The public methods that Keras gives to callbacks of a class, without methods such as `append`, which `impure`
    finds.
    """
    found = {
        name
        for base in kind.__mro__ if has_base(base, CALLBACKS) and is_library(base.__module__) == "keras"
        for name, value in vars(base).items() if isinstance(value, FunctionType)
    }  # fmt: skip
    return sorted(name for name in found - MUTATORS if not name.startswith("_"))


def _is_method_of_keras(owner: Any, name: str) -> bool:
    return has_base(type(owner), CALLBACKS) and name in methods_of_keras(type(owner))


def _asks(entered: Entered, name: str) -> bool:
    """Whether code may read `name` of a callback by a name that is made at run time."""
    found = (
        reached(path, entered)
        for asked in reads_of(entered.function.__code__).asked if not asked.is_own and name.startswith(asked.begins)
        for path in asked.of or {UNKNOWN}
    )  # fmt: skip
    return any(one is EMPTY or has_base(type(one), CALLBACKS) for one in found)
