"""A survey's visits to what code calls: functions, methods, and what functools and operator make of them."""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Iterable
from types import FunctionType, MethodType, ModuleType
from typing import Any

from placer.trace.python.code.bytecode import is_for_super, reads_of
from placer.trace.python.entered_functions import Entered, contents, imported, reached
from placer.trace.python.impure import is_compiled_elsewhere
from placer.trace.python.kinds import (
    CALLBACKS,
    has_base,
    is_library,
    is_of_library,
    is_plain,
    is_user_class,
    is_users_own,
    own_dict,
)
from placer.trace.python.survey.caches import kept_result, why_hidden
from placer.trace.python.survey.callbacks import calls_callback, methods_of_keras
from placer.trace.python.survey.classes import class_code
from placer.trace.python.survey.getters import parts_of_getter, sought_by_partial
from placer.trace.python.survey.objects import visit_rest
from placer.trace.python.survey.walk import FREE, Role, UnguardableError, Walk
from placer.trace.signature import Same
from placer.wrapped import Wrapped

MOST_FUNCTIONS = 2_000
OF_TRACES = frozenset({"cast", "convert_to_tensor", "is_tensor", "while_loop"})
"""Functions of TensorFlow that a trace replaces for a while, for all threads."""


def visit_function(walk: Walk, function: FunctionType, label: str, role: Role = FREE) -> None:
    """Visit a function's code, and the globals, free variables, default arguments and imports that it reads."""
    if is_of_library(function):
        walk.tokens.append((label, Same(function)))
        return
    if len(walk.functions) >= MOST_FUNCTIONS:
        raise UnguardableError(f"it calls more functions than can be looked through (`{label}` and more)")
    walk.enter(function, role)
    label = label if walk.entered[1:] else ""
    walk.tokens.append((label, Same(function.__code__)))
    walk.guard.attributes(function, ["__code__", "__defaults__", "__kwdefaults__"])
    walk.own(vars(function), f"{function.__name__}.")
    if "dispatch" in vars(function) and "registry" in vars(function):  # of functools.singledispatch
        walk.child(f"{function.__name__}.registry", vars(function)["registry"])
    _visit_globals(walk, function, label)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        walk.guard.cell(cell)
        if name == "__class__" and is_for_super(function.__code__):
            _visit_base(walk, contents(cell), name)
        else:
            walk.child(name, contents(cell), by_name=True)
    for part in (function.__defaults__, function.__kwdefaults__):
        if part:
            walk.child(f"{function.__name__}'s default arguments", part)
    _visit_imports(walk, function)
    _visit_libraries(walk, walk.entered[-1])
    _visit_classes(walk, walk.entered[-1])


def visit_method(walk: Walk, method: Any, label: str) -> None:
    """Visit a bound method, in Python or in C: its code, and its object."""
    function, owner = getattr(method, "__func__", None), method.__self__
    if is_compiled_elsewhere(method):
        raise UnguardableError(f"it reads `{label}`, a compiled function, which Placer cannot look through")
    if has_base(type(owner), CALLBACKS) and method.__name__ in methods_of_keras(type(owner)):
        raise UnguardableError(calls_callback(label))
    if isinstance(function, FunctionType):
        visit_function(walk, function, label, Role(owner, True))
    else:
        walk.tokens.append((label, getattr(method, "__name__", None)))
    if isinstance(owner, ModuleType):
        walk.tokens.append((label, Same(owner)))
    else:
        walk.child("self" if label == "step" else f"{label}.__self__", owner)


def visit_partial(walk: Walk, partial: Any, label: str) -> None:
    """Visit the function of a functools.partial or partialmethod, and the arguments that it is given."""
    sought = sought_by_partial(partial)
    if sought is not None:
        walk.unshown.add(sought)
    walk.child(label if sought is None else partial.func.__name__, partial.func)
    for i, value in enumerate(partial.args):
        walk.child(f"{label}'s argument {i}", value)
    walk.child(f"{label}'s arguments", partial.keywords)
    walk.own(own_dict(partial) or {}, f"{label}.")
    visit_rest(walk, partial, functools.partial, label)


def visit_getter(walk: Walk, getter: Any, label: str) -> None:
    """Visit an operator.attrgetter or methodcaller, which code other than the step's may have made."""
    sought, given = parts_of_getter(getter)
    walk.unshown.add(sought)
    for i, value in enumerate(given):
        walk.child(f"{label}'s argument {i}", value)


def visit_cache(walk: Walk, cached: Any, label: str) -> None:
    """Visit the result that a function under functools.lru_cache has returned. Raises UnguardableError if the cache
    hides its results.
    """
    why = why_hidden(cached, walk.names)
    if why is not None:
        raise UnguardableError(f"it calls `{label}`, {why}")
    result = kept_result(cached)
    walk.guard.check(lambda: kept_result(cached) is result)
    walk.child(f"{label}()", result)


def visit_property(walk: Walk, found: Any, label: str) -> None:
    """Visit the getter of a property, and its setter and deleter if code writes an attribute of its name."""
    walk.child(label, found.fget)
    if label.rpartition(".")[2] in walk.sought.sets:
        walk.child(f"{label}'s setter", found.fset)
        walk.child(f"{label}'s deleter", found.fdel)
    visit_rest(walk, found, property, label)


def visit_wrapped(walk: Walk, found: Any, label: str) -> None:
    """Visit the function of a staticmethod or a classmethod."""
    walk.child(label, found.__func__)
    visit_rest(walk, found, staticmethod, label)


def visit_cached(walk: Walk, found: Any, label: str) -> None:
    """Visit the function of a functools.cached_property, or the functions of a singledispatchmethod."""
    walk.child(label, getattr(found, "func", None))
    if isinstance(found, functools.singledispatchmethod):
        walk.child(f"{label}.registry", found.dispatcher.registry)
    visit_rest(walk, found, functools.cached_property, label)


def visit_stand_in(walk: Walk, found: Wrapped, label: str) -> None:
    """Visit the user's function of a step that Placer has wrapped. A trace calls this function, and the wrapped step
    has its public attributes.
    """
    walk.stand_ins.append((label.rpartition(".")[2], found))
    walk.child(label, found.__wrapped__)


def _visit_globals(walk: Walk, function: FunctionType, label: str) -> None:
    held, names = function.__globals__, reads_of(function.__code__).globals
    present = [name for name in sorted(names) if name in held]
    walk.entries(held, present, "" if not label else f"{function.__module__}.", by_name=True)
    missing = frozenset(name for name in names if name not in held)
    if missing:
        walk.guard.check(lambda: held.keys().isdisjoint(missing))
        walk.tokens.append((label, missing))
        _note(walk, builtins, sorted(missing & vars(builtins).keys()), "")


def _visit_imports(walk: Walk, function: FunctionType) -> None:
    """Visit the modules that a function imports while it runs."""
    paths = reads_of(function.__code__).paths
    for name in sorted({imported(path, function) for path in paths if path.root == "import"}):
        walk.child(name, sys.modules.get(name), by_name=True)
        _guard_module(walk, name)


def _visit_libraries(walk: Walk, entered: Entered) -> None:
    """Visit what code reads by name from modules of libraries, where a program may put something else."""
    found: dict[int, tuple[ModuleType, str, list[str]]] = {}
    for path in sorted(reads_of(entered.function.__code__).paths):
        owner, label = reached(path._replace(attributes=()), entered), path.name
        for attribute in path.attributes:
            if not issubclass(type(owner), ModuleType) or attribute not in vars(owner):
                break
            if is_library(owner.__name__) and attribute not in OF_TRACES:
                found.setdefault(id(owner), (owner, f"{label}.", []))[2].append(attribute)
            owner, label = vars(owner)[attribute], f"{label}.{attribute}"
    for module, label, names in found.values():
        _note(walk, module, sorted(set(names)), label)


def _visit_classes(walk: Walk, entered: Entered) -> None:
    """Visit the classes that code takes from an object to make another object (`type(self)(rate)`)."""
    made = {path for call in reads_of(entered.function.__code__).calls for path in call.callee}
    for path in sorted(path for path in made if path.attributes[-1:] == ("__class__",)):
        kind = reached(path, entered)
        if issubclass(type(kind), type) and is_user_class(kind):
            walk.child(kind.__name__, kind, by_name=True)


def _note(walk: Walk, module: ModuleType, names: Iterable[str], label: str) -> None:
    """Note what a library's module holds under these names. Only values that are not a library's are looked into."""
    held = vars(module)
    names = [name for name in names if (id(module), name) not in walk.members and not _is_lazy(held[name])]
    walk.members.update((id(module), name) for name in names)
    walk.guard.named(held, names)
    for name in names:
        if is_plain(held[name]) or _is_of_program(held[name]):
            walk.child(f"{label}{name}", held[name], by_name=True)
        else:
            walk.tokens.append((f"{label}{name}", Same(held[name])))


def _is_lazy(value: Any) -> bool:
    """Whether a value is a module that replaces itself by another module once it is used."""
    return issubclass(type(value), ModuleType) and type(value) is not ModuleType


def _is_of_program(value: Any) -> bool:
    """Whether a value in a library's module is the program's own, or a container that the program may change."""
    if isinstance(value, (FunctionType, MethodType)):
        return is_users_own(value)
    if type(value) in (list, dict, set):
        return value is not sys.modules
    return not is_library(str(getattr(value, "__module__", None) or type(value).__module__))


def _guard_module(walk: Walk, name: str) -> None:
    module = sys.modules.get(name)
    walk.guard.check(lambda: sys.modules.get(name) is module)


def _visit_base(walk: Walk, kind: Any, label: str) -> None:
    """Visit a class that a method names only by `super()`, and of which the method therefore makes no objects."""
    walk.tokens.append((label, Same(kind)))
    if isinstance(kind, type):
        walk.later(lambda walk, kind, _: class_code(walk, kind, None), kind, label)
