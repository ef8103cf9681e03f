"""A survey's visit to the user's modules."""

from __future__ import annotations

from functools import partial
from types import FunctionType, ModuleType

from placer.trace.python.entered_functions import Entered
from placer.trace.python.impure import imports, impurity, is_known_compiled
from placer.trace.python.kinds import EMPTY, is_library, is_plain, is_user_class, plain_key
from placer.trace.python.survey.classes import class_code
from placer.trace.python.survey.walk import Walk


def visit_module(walk: Walk, module: ModuleType, label: str) -> None:
    """Visit what code names of a module, and what its `__getattr__` and the properties of its class return."""
    if is_library(module.__name__):
        return
    held = vars(module)
    walk.guard.names(held)
    names = [name for name in held if name in walk.names or walk.sought.asks(module, name)]
    lacked = walk.sought.lacked_by(module)
    if lacked and "__getattr__" in held and not is_known_compiled(module.__name__):
        _visit_made(walk, module, lacked, label)
        names.append("__getattr__")
    walk.entries(held, sorted(set(names)), f"{label}.", by_name=None not in lacked)
    if is_user_class(type(module)):  # one that has properties, say
        is_asked = any(type(of.held) is type(module) for of, _ in walk.sought.lacked)
        class_code(walk, type(module), module, but=() if is_asked else ("__getattr__",))


def _visit_made(walk: Walk, module: ModuleType, lacked: frozenset[str | None], label: str) -> None:
    """Visit what a module's own `__getattr__` returns for names that the module does not hold. No code shows what it
    finds in the modules that it imports, so these values are compared, if it does nothing else.
    """
    make, held = vars(module)["__getattr__"], vars(module)
    names = [name for name in lacked if name is not None]
    walk.guard.check(lambda: held.keys().isdisjoint(names))
    if None in lacked or type(make) is not FunctionType:
        return
    if imports(make) and impurity(Entered(make, may_import=True)) is None:
        walk.importers.add(id(make))
        for name in sorted(names):
            value = getattr(module, name, EMPTY)
            walk.guard.check(partial(_still_has, module, name, value))
            walk.child(f"{label}.{name}", value)


def _still_has(module: ModuleType, name: str, value: object) -> bool:
    """Whether a module's `__getattr__` still returns `value` for a name."""
    now = getattr(module, name, EMPTY)
    return now is value or (is_plain(now) and is_plain(value) and plain_key(now) == plain_key(value))
