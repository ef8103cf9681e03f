"""The base class of objects that Placer puts in the place of a user's function."""

from __future__ import annotations

import copy
import functools
import inspect
import operator
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, ClassVar

FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, functools.partial)


class Wrapped:
    """An object in the place of a user's function, with the function's name and documentation, as with
    `functools.wraps`. A program that reads, sets or deletes a public attribute of the object does so on the function,
    except for the names that `keeps` accepts.
    """

    __wrapped__: Callable[..., Any]
    own_names: ClassVar[frozenset[str]] = frozenset()  # public attributes that objects of the class set on themselves

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function, updated=())  # type: ignore[arg-type]

    @classmethod
    def keeps(cls, name: str) -> bool:
        """Whether an attribute of this name is the object's own: attributes that Placer gives it, and private ones, by
        which TensorFlow recognises its objects.
        """
        return name.startswith("_") or name in cls.own_names or hasattr(cls, name)

    def __getattr__(self, name: str) -> Any:
        """An attribute that only the function has; a private one only if the program put it on a Python function."""
        function = vars(self).get("__wrapped__")
        is_users = isinstance(function, FunctionType) and not name.startswith(("__", "_tf_"))
        if function is None or (name.startswith("_") and not is_users):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(function, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Raises AttributeError for a public name that `keeps` accepts, because reading it gives Placer's value."""
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        elif self.keeps(name):
            raise AttributeError(f"{name} is what Placer keeps on the wrapped step; give yours another name")
        else:
            setattr(self.__wrapped__, name, value)

    def __delattr__(self, name: str) -> None:
        """Raises AttributeError as `__setattr__` does."""
        if name.startswith("_"):
            object.__delattr__(self, name)
        elif self.keeps(name):
            raise AttributeError(f"{name} is what Placer keeps on the wrapped step, and cannot be deleted")
        else:
            delattr(self.__wrapped__, name)

    def __copy__(self) -> Any:
        return copy.copy(self.__wrapped__)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy of the function, without Placer. The copy of a method is bound to a copy of the method's object,
        because a copied trainer must not train the original model.
        """
        method = _method_of(self.__wrapped__)
        if method is None:
            return copy.deepcopy(self.__wrapped__, memo)
        owner, name = method
        copied = copy.deepcopy(owner, memo)
        return inspect.getattr_static(type(copied), name).__get__(copied, type(copied))

    def __reduce_ex__(self, protocol: Any) -> str | tuple[Any, ...]:
        """Pickle the user's function with names of Python's standard library only, so that unpickling needs no Placer.
        If the function's own name leads to this object, pickle that name, as for any function.
        """
        name = getattr(self, "__qualname__", None)
        if name is not None and _named(self.__module__, name) is self:
            return str(name)
        if isinstance(self.__wrapped__, MethodType):
            return self.__wrapped__.__reduce_ex__(protocol)
        method = _method_of(self.__wrapped__)
        return (operator.getitem, ((self.__wrapped__,), 0)) if method is None else (getattr, method)


def unwrapped(step: Any) -> Any:
    """The user's function if `step` is wrapped already, as when a notebook's cell is run again; else `step`."""
    while isinstance(step, Wrapped):
        step = step.__wrapped__
    return step


def is_function(step: Any) -> bool:
    """Whether a step is a function of Python or TensorFlow, rather than another object that can be called."""
    return isinstance(step, FUNCTIONS) or hasattr(type(step), "python_function")


def hidden_by(kind: type[Wrapped], function: Any) -> str | None:
    """A message that names what a program has put on `function` and an object of `kind` would hide behind attributes of
    its own; None if there is nothing.
    """
    if not is_function(function):
        return None
    parts = function, getattr(function, "python_function", None), getattr(function, "__func__", None)
    own = {name for part in parts for name in getattr(part, "__dict__", None) or ()}
    hidden = sorted(name for name in own if not name.startswith("_") and kind.keeps(name))
    if not hidden:
        return None
    called = getattr(function, "__name__", None) or type(function).__name__
    return f"{called} has {', '.join(hidden)} of its own, which the wrapped step would hide; give it another name."


def _named(module: str, name: str) -> Any:
    """The object with the qualified name `name` in a module; None if there is none."""
    return functools.reduce(lambda held, part: getattr(held, part, None), name.split("."), sys.modules.get(module))


def _method_of(function: Any) -> tuple[Any, str] | None:
    """The object to which a tf.function of the object's class is bound, and the method's name; None for any other
    function. Python does not know this tf.function as a method, and a plain copy of it would still train the original.
    """
    bound = inspect.unwrap(python) if (python := getattr(function, "python_function", None)) is not None else None
    owner = getattr(getattr(bound, "__self__", None), "target", None)  # TensorFlow holds it by a weak reference
    for kind in type(owner).__mro__ if owner is not None else ():
        for name, value in vars(kind).items():
            if type(value) is type(function) and value.__get__(owner, type(owner)) is function:
                return owner, name
    return None
