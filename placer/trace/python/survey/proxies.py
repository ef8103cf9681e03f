"""A survey's visit to the proxies of wrapt, which look like the objects that they wrap."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from placer.trace.python.kinds import EMPTY, OF_WRAPPERS, PROXIES, WRAPPED, WRAPPERS, is_of_library, of_proxy
from placer.trace.python.survey.walk import FREE, Role, UnguardableError, Walk


def visit_proxy(walk: Walk, found: Any, label: str, role: Role = FREE) -> None:
    """Visit the object that a proxy wraps, and the wrapper function that wrapt.decorator was given for it.

    role: the role of a method that wrapt binds. Raises UnguardableError if Placer cannot see into the proxy.
    """
    if type(found) not in PROXIES or any(name.startswith("_self_") for name in walk.names):
        raise UnguardableError(f"it reads `{label}`, and Placer cannot see into a {type(found).__name__}")
    role = role if type(found) in WRAPPERS else FREE
    names = (WRAPPED, *(OF_WRAPPERS if type(found) in WRAPPERS else ()))
    held = [of_proxy(found, name) for name in names]
    if any(type(one) is FunctionType and is_of_library(one) for one in held[1:2]):  # it may keep anything
        raise UnguardableError(f"it calls `{label}`, and Placer cannot see into what wrapt keeps for it")
    walk.guard.check(lambda: all(of_proxy(found, name) is one for name, one in zip(names, held, strict=True)))
    for name, value in zip(names, held, strict=True):
        if name == WRAPPED:
            walk.child(label, value, role=role)
        elif name == "_self_wrapper" and type(value) is FunctionType:
            instance = role.owner if role.is_method else of_proxy(found, "_self_instance")
            walk.child(label, value, role=_of_wrapper(value, instance, role.is_method or instance is not None))
        else:
            walk.child(f"{label}.{name}", value)


def _of_wrapper(function: FunctionType, instance: Any, has_instance: bool) -> Role:
    """The role of a wrapper function. wrapt calls it with the function that it wraps, the object of which that function
    is a method, and the arguments.
    """
    given = function.__code__.co_varnames[: function.__code__.co_argcount][1:2] if has_instance else ()
    return Role(arguments=dict.fromkeys(given, EMPTY if instance is None else instance))
