"""What Placer puts in the place of a function of the user's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar


class Wrapped:
    """Is named and documented like the function in whose place it is, as `functools.wraps` does it, and has its
    attributes: what a program reads of its function, or sets, once that is wrapped, is the function's own.
    """

    __wrapped__: Callable[..., Any]
    own_names: ClassVar[frozenset[str]] = frozenset()  # public attributes that objects of the class set on themselves

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function, updated=())  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        """An attribute that only the function has. Private ones stay its own: TensorFlow knows its objects by them."""
        function = vars(self).get("__wrapped__")
        if function is None or name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(function, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or name in self.own_names or hasattr(type(self), name):
            object.__setattr__(self, name, value)
        else:
            setattr(self.__wrapped__, name, value)


def unwrapped_for_good(step: Any) -> Any:
    """The user's function where `step` was wrapped before, as when a notebook's cell is run again: what wrapped it is
    closed. Else `step` itself.
    """
    while isinstance(step, Wrapped):
        close = getattr(type(step), "close", None)
        if close is not None:
            close(step)
        step = step.__wrapped__
    return step
