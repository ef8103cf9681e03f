"""A survey's visits to the user's classes: methods that may be called, and attributes that are read."""

from __future__ import annotations

import functools
from collections.abc import Collection
from types import FunctionType, ModuleType
from typing import Any

from placer.trace.python.kinds import (
    CALLED_BY_KERAS,
    LAYERS,
    MAKERS,
    NO_CODE,
    NOT_CALLED,
    TEXTS,
    has_base,
    in_slot,
    is_library,
    is_made_by_library,
    is_of_library,
    is_user_class,
    is_users_own,
    own_dict,
    slots_of,
    unwrapped,
)
from placer.trace.python.survey.caches import CACHED
from placer.trace.python.survey.walk import Role, Walk
from placer.trace.signature import Same

SPECIAL = (FunctionType, property, staticmethod, classmethod, functools.partialmethod, CACHED)
"""The types of special methods that Python itself calls."""
NOT_IN_STEPS = frozenset({"evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"})
COMPARISONS = frozenset({"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"})
GENERATING = frozenset({"__dataclass_fields__", "__attrs_attrs__"})  # of classes with generated methods


def visit_class(walk: Walk, kind: type, label: str) -> None:
    """Visit a class that code reaches, and of which it may make objects."""
    class_code(walk, kind, None, MAKERS)
    _visit_metaclass(walk, kind, is_called=True)


def class_code(walk: Walk, kind: type, owner: Any, more: Collection[str] = (), but: Collection[str] = ()) -> None:
    """Note the methods that may be called, and the attributes that are read, of a class and its bases. A base from a
    library counts only with the functions that the program put there. owner: an object of the class. more: names that
    are noted in any case. but: names that are left out.
    """
    if owner is not None:
        _enter_methods(walk, kind, owner, but)
    if (id(kind), "") in walk.members and not more:
        return
    if owner is not None:
        walk.members.add((id(kind), ""))
    _visit_metaclass(walk, kind, is_called=False)
    for base in kind.__mro__:
        if is_library(base.__module__):
            _visit_put_there(walk, base, owner, more)
            continue
        held = vars(base)
        walk.guard.names(held)
        names = sorted(name for name in held if name in more or _is_used(walk, kind, base, name))
        names = [name for name in names if (id(base), name) not in walk.members and name not in but]
        if owner is not None:
            walk.members.update((id(base), name) for name in names)
        walk.guard.named(held, names)
        if any(isinstance(held[name], classmethod) for name in names):  # it may call the class
            walk.child(kind.__name__, kind, by_name=True)
        for name in names:
            found = _of_the_user(held[name]) if name in TEXTS else held[name]
            walk.child(f"{base.__name__}.{name}", found, role=_role(walk, base, name, owner))


def _visit_put_there(walk: Walk, base: type, owner: Any, more: Collection[str]) -> None:
    """Visit the functions that a program has put into a library's class, such as `keras.layers.Dense.call`. Functions
    that it puts there later are not seen, because a check of all that such a class holds would cost more than the
    step's call.
    """
    held = vars(base)
    names = [name for name in held if name in more or name not in NO_CODE | NOT_CALLED | NOT_IN_STEPS]
    names = [name for name in names if _is_the_users(held[name]) and (id(base), name) not in walk.members]
    walk.members.update((id(base), name) for name in names)
    walk.guard.named(held, names)
    for name in names:
        walk.child(f"{base.__name__}.{name}", held[name], role=_role(walk, base, name, owner))


def _is_the_users(method: Any) -> bool:
    """Whether a method, or the getter of a property, is a function of the user's."""
    method = getattr(method, "__func__", getattr(method, "fget", method))
    return type(method) is FunctionType and not is_of_library(method)


def _enter_methods(walk: Walk, kind: type, owner: Any, but: Collection[str]) -> None:
    """Note again the methods that were visited before, as methods of `owner`, if its attributes have other types than
    those of the objects before. Methods that wrapt has decorated are noted only once.
    """
    held = dict(own_dict(owner) or {})
    held |= {name: in_slot(vars(base).get(name), owner) for base in kind.__mro__ for name in slots_of(base)}
    shape = frozenset((name, _kind_of(value)) for name, value in held.items() if walk.is_read(name))
    if (id(kind), shape) in walk.shapes:
        return
    walk.shapes.add((id(kind), shape))
    for base in kind.__mro__:
        for name, found in vars(base).items() if not is_library(base.__module__) else ():
            is_function = type(found) is FunctionType and walk.is_known(found) and not is_of_library(found)
            if is_function and name not in but and _is_used(walk, kind, base, name):
                walk.enter(found, _role(walk, base, name, owner))


def _kind_of(value: Any) -> Same | type:
    return Same(value) if issubclass(type(value), ModuleType) else type(value)


def _role(walk: Walk, base: type, name: str, owner: Any) -> Role:
    return Role(owner, True, is_judged=name not in TEXTS or walk.sought.is_shown(base))


def _visit_metaclass(walk: Walk, kind: type, is_called: bool) -> None:
    """Visit the metaclass of a class: its properties, and its `__call__` if code reaches the class itself and so may
    call it. Other classes may have the same metaclass, so its functions are not noted as methods of this class.
    """
    meta = type(kind)
    is_called = is_called or "__class__" in walk.names
    if is_user_class(meta) and (id(meta), f"metaclass {is_called}") not in walk.members:
        walk.members.add((id(meta), f"metaclass {is_called}"))
        class_code(walk, meta, None, but=() if is_called else ("__call__",))


def _is_used(walk: Walk, kind: type, base: type, name: str) -> bool:
    """Whether code may call or read what a base of a class has under a name."""
    if name in TEXTS:
        return walk.sought.shows(kind, vars(base)[name])
    if name.startswith("__") and name.endswith("__"):
        held = vars(base)[name]
        compares = walk.sought.equates or name in walk.names
        if name in COMPARISONS and not compares and _is_generated(base, held):
            return False
        return name not in NO_CODE and (name in walk.names or isinstance(held, SPECIAL) or is_users_own(held))
    if name in walk.names or walk.sought.asks(base, name):
        return True
    if name in CALLED_BY_KERAS and has_base(kind, LAYERS):
        return True
    overrides = any(name in vars(other) for other in kind.__mro__ if is_library(other.__module__))
    return overrides and name not in NOT_CALLED


def _is_generated(base: type, method: Any) -> bool:
    """Whether `dataclass` or attrs has written a method of a class, which reads all fields."""
    code = getattr(method, "__code__", None)
    return code is not None and code.co_filename.startswith("<") and not GENERATING.isdisjoint(vars(base))


def _of_the_user(method: Any) -> Any:
    """The method without the function that a library has put around it. A dataclass's `__repr__` has one, which checks
    whether it is already running.
    """
    return unwrapped(method) if is_made_by_library(method) else method
