"""The functions that a step runs, and the objects to which the paths in their code lead."""

from __future__ import annotations

import builtins
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Mapping
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any, NamedTuple

from placer.trace.python.code.paths import ITEM, Path
from placer.trace.python.kinds import EMPTY, in_slot, unproxied

MAKES_ITSELF = frozenset({"__init__", "__new__", "__post_init__", "__setstate__", "build"})


class Entered(NamedTuple):
    """A Python function that a step runs: the step's own, or one that it calls."""

    function: FunctionType
    owner: Any = None  # the object of which it is a method, if known
    is_method: bool = False
    is_step: bool = False
    # The known arguments by name: those of the step's call, or those that outlive the call of a helper.
    arguments: Mapping[str, Any] = MappingProxyType({})
    may_import: bool = False  # whether what it finds in the modules that it imports is compared
    is_judged: bool = True  # whether the step is known to run it; False for the text of an object that it may not show


def along(path: Path, entered: Entered) -> Iterator[Any]:
    """The objects on a path, as far as they can be found without running code of the user's."""
    value = _root(path, entered)
    yield value
    for attribute in path.attributes:
        value = member(value, attribute)
        if value is EMPTY:
            return
        yield value


def reached(path: Path, entered: Entered) -> Any:
    """The object that a path leads to; EMPTY if only running the code would find it."""
    found = list(along(path, entered))
    end = found[-1] if len(found) > len(path.attributes) else EMPTY
    is_computed = hasattr(type(end), "__get__") and not isinstance(end, FunctionType)  # a property, say
    return EMPTY if is_computed else end


def imported(path: Path, function: FunctionType) -> str:
    """The full name of the module that a function imports by a path, which may be relative to the function's module."""
    held = function.__globals__
    package = held.get("__package__") or str(held.get("__name__", "")).rpartition(".")[0]
    try:
        return importlib.util.resolve_name(path.name, package)
    except ImportError:
        return path.name


def _root(path: Path, entered: Entered) -> Any:
    function: Any = entered.function
    if path.root == "global":
        return function.__globals__.get(path.name, getattr(builtins, path.name, EMPTY))
    if path.root == "import":
        return sys.modules.get(imported(path, function), EMPTY)
    if path.root == "free":
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        return contents(cells[path.name]) if path.name in cells else EMPTY
    if path.root == "argument" and path.name in entered.arguments:
        return entered.arguments[path.name]
    first = function.__code__.co_varnames[:1]
    return entered.owner if path.root == "argument" and (path.name,) == first and entered.owner is not None else EMPTY


def member(value: Any, attribute: str) -> Any:
    """An attribute of an object or a module, found without running the user's code; EMPTY if it is not known."""
    value = unproxied(value)
    if value is EMPTY or attribute == ITEM:
        return EMPTY
    if attribute == "__class__":
        return type(value)
    if isinstance(value, ModuleType):
        return getattr(value, attribute, EMPTY)
    found = inspect.getattr_static(value, attribute, EMPTY)
    if inspect.ismemberdescriptor(found) and not isinstance(value, type):
        return in_slot(found, value)
    return found.__func__ if isinstance(found, (staticmethod, classmethod)) else found


def contents(cell: Any) -> Any:
    """The value in a closure's cell; EMPTY if there is none."""
    try:
        return cell.cell_contents
    except ValueError:
        return EMPTY
