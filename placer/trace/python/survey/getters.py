"""Functions that read an attribute by a name that they are given, which code other than the step's may choose."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import json
import operator
import pickle
from typing import Any

from placer.trace.python.attribute_names import Sought
from placer.trace.python.code.names import NAMING

READERS = {
    id(function): function.__name__
    for function in (
        getattr, hasattr, vars, dir, inspect.getattr_static, inspect.getmembers, operator.attrgetter,
        operator.methodcaller, dataclasses.asdict, dataclasses.astuple, dataclasses.fields, dataclasses.replace,
        copy.copy, copy.deepcopy, json.dumps, pickle.dumps,
    )
}  # fmt: skip
COMPARERS = frozenset(
    map(id, (max, min, sorted, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge))
) | frozenset(map(id, (operator.contains, operator.countOf, operator.indexOf)))
COMPARING = Sought(equates=True)
ANYTHING = Sought(reflects=True, asked=frozenset({(None, "")}))
GETTERS = (operator.attrgetter, operator.methodcaller)


def is_renamed(function: Any, label: str) -> bool:
    """Whether code reaches one of READERS under a name other than its own. Its calls are found only by its own name."""
    own = READERS.get(id(function))
    return own is not None and own != label.rpartition(".")[2]


def parts_of_getter(getter: Any) -> tuple[Sought, tuple[Any, ...]]:
    """(what an attrgetter or a methodcaller reads, the arguments that it passes to the method)."""
    made, given = getter.__reduce__()
    if isinstance(made, functools.partial):  # of a methodcaller with keywords
        return _named(made.args[0]), (*given, *made.keywords.values())
    names = given if made is operator.attrgetter else given[:1]
    return _named(*names), given[len(names) :]


def sought_by_partial(found: Any) -> Sought | None:
    """What a partial of one of READERS reads, if it was given the name; None for any other partial."""
    at = NAMING.get(READERS.get(id(found.func), "")) if isinstance(found, functools.partial) else None
    name = found.args[at] if at is not None and at < len(found.args) else None
    return _named(name) if isinstance(name, str) else None


def _named(*names: str) -> Sought:
    return Sought(frozenset(part for name in names for part in name.split(".")))
