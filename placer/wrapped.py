"""What Placer puts in the place of a function of the user's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any, ClassVar


class Wrapped:
    """Is named and documented like the function in whose place it is, as `functools.wraps` does it, and has its public
    attributes: what a program reads, sets or deletes there is the function's own, but for the names that `keeps` says.
    """

    __wrapped__: Callable[..., Any]
    own_names: ClassVar[frozenset[str]] = frozenset()  # public attributes that objects of the class set on themselves

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function, updated=())  # type: ignore[arg-type]

    @classmethod
    def keeps(cls, name: str) -> bool:
        """Whether an attribute of this name is the object's own: what Placer gives it, and private ones, by which
        TensorFlow knows its objects.
        """
        return name.startswith("_") or name in cls.own_names or hasattr(cls, name)

    def __getattr__(self, name: str) -> Any:
        """An attribute that only the function has; a private one if it was put on a function of Python's."""
        function = vars(self).get("__wrapped__")
        is_users = isinstance(function, FunctionType) and not name.startswith(("__", "_tf_"))
        if function is None or (name.startswith("_") and not is_users):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(function, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self.keeps(name):
            object.__setattr__(self, name, value)
        else:
            setattr(self.__wrapped__, name, value)

    def __delattr__(self, name: str) -> None:
        if self.keeps(name):
            object.__delattr__(self, name)
        else:
            delattr(self.__wrapped__, name)


def unwrapped(step: Any) -> Any:
    """The user's function where `step` was wrapped before, as when a notebook's cell is run again; else `step`."""
    while isinstance(step, Wrapped):
        step = step.__wrapped__
    return step
