"""Finds the objects that outlive a call and that the functions of a step pass to each other, as their code shows."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from placer.trace.python.code.bytecode import reads_of
from placer.trace.python.code.paths import Path, Paths
from placer.trace.python.code.reads import Call
from placer.trace.python.entered_functions import MAKES_ITSELF, Entered, reached
from placer.trace.python.kinds import EMPTY, TENSORS, WRAPPERS, is_plain, of_proxy, unproxied


class _Callee(NamedTuple):
    entered: Entered
    given: int  # number of arguments that the call does not show: a method's own object
    packs: bool = False  # whether it takes the call's arguments as a tuple and a dict, as a wrapper of wrapt's does


def bound(entered: Sequence[Entered]) -> Iterator[Entered]:
    """Yield each helper of a step again for each argument that outlives its call, with this argument in `arguments`."""
    known: dict[int, Entered] = {}
    for one in entered:
        before = known.get(id(one.function))
        if not one.is_step and (before is None or before.owner is None):
            known[id(one.function)] = one
    methods: dict[str, list[Entered]] = defaultdict(list)
    for one in known.values():
        if one.is_method:
            methods[one.function.__name__].append(one)
    waiting, seen = list(entered), set()
    while waiting:
        caller = waiting.pop()
        for call in reads_of(caller.function.__code__).calls:
            for callee in _callees(call, caller, known, methods):
                for name, value in _lasting(call, callee, caller):
                    key = (id(callee.entered.function), name, id(value))
                    if key not in seen:
                        seen.add(key)
                        waiting.append(callee.entered._replace(arguments={name: value}))
                        yield waiting[-1]


def _callees(
    call: Call, caller: Entered, known: dict[int, Entered], methods: dict[str, list[Entered]]
) -> Iterator[_Callee]:
    for path in call.callee:
        found, given = reached(path, caller), 0
        while type(found) in WRAPPERS:
            if (wrapper := of_proxy(found, "_self_wrapper")) is not None and id(wrapper) in known:
                yield _Callee(known[id(wrapper)], 0, packs=True)
            found = of_proxy(found)
        if isinstance(found, type):
            found, given = inspect.getattr_static(found, "__init__", EMPTY), 1
        elif isinstance(found, MethodType):
            found, given = found.__func__, 1
        elif isinstance(found, FunctionType) and path.attributes:
            owner = reached(path._replace(attributes=path.attributes[:-1]), caller)
            held = EMPTY if isinstance(owner, ModuleType) else inspect.getattr_static(owner, path.attributes[-1], EMPTY)
            is_bound = unproxied(held) is found and not isinstance(owner, type)
            given = int(isinstance(held, classmethod) or is_bound)
        if found is EMPTY and path.attributes:  # a method, perhaps, of an object that only running the code would find
            yield from (_Callee(one, 1) for one in methods.get(path.attributes[-1], ()))
        elif id(found) in known:
            yield _Callee(known[id(found)], given)
        elif isinstance(found, (staticmethod, classmethod)) and id(found.__func__) in known:  # that wrapt has wrapped
            yield _Callee(known[id(found.__func__)], int(isinstance(found, classmethod)))


def _lasting(call: Call, callee: _Callee, caller: Entered) -> Iterator[tuple[str, Any]]:
    """(the callee's name for it, value) of each argument of a call that outlives the call and may be changed."""
    code = callee.entered.function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    count = len(call.arguments) - len(call.keywords)
    if callee.packs:
        for i, paths in enumerate(call.arguments):
            packed = names[2:3] if i < count else names[3:4]
            for value in (reached(path, caller) for path in paths if _may_change(path, caller)):
                yield from ((name, (value,) if i < count else {call.keywords[i - count]: value}) for name in packed)
        return
    given: Iterable[tuple[str, Paths]] = (
        *zip(names[callee.given : code.co_argcount], call.arguments[:count], strict=False),
        *zip(call.keywords, call.arguments[count:], strict=True),
    )
    for name, paths in given:
        for path in paths if name in names else ():
            if _may_change(path, caller):
                yield name, reached(path, caller)


def _may_change(path: Path, caller: Entered) -> bool:
    """Whether the object that a path leads to outlives the call and can be changed."""
    value = reached(path, caller)
    return _outlives(path, caller) and not is_plain(value) and not isinstance(value, (*TENSORS, FunctionType))


def _outlives(path: Path, caller: Entered) -> bool:
    """Whether the object that a path in the caller's code leads to exists before and after the caller runs."""
    if path.root != "argument":
        return path.root in ("global", "free", "import")
    is_own = caller.is_method and path.name in caller.function.__code__.co_varnames[:1]
    is_made = is_own and caller.function.__name__ in MAKES_ITSELF
    return not is_made and (is_own or caller.is_step or path.name in caller.arguments)
