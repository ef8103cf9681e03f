"""Which objects that outlive a call the functions of a step pass to each other, as far as their code shows."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from placer.trace.python.code import Call, Path, Paths, reads_of
from placer.trace.python.impure import MAKES_ITSELF, Entered, reached
from placer.trace.python.kinds import EMPTY, TENSORS, is_plain


class _Callee(NamedTuple):
    entered: Entered
    given: int  # arguments that the call does not show: a method's own object


def bound(entered: Sequence[Entered]) -> Iterator[Entered]:
    """The helpers of a step once more for each argument that outlives its call, which is in `arguments` then."""
    known = {id(one.function): one for one in entered if not one.is_step}
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
        if isinstance(found, type):
            found, given = inspect.getattr_static(found, "__init__", EMPTY), 1
        elif isinstance(found, MethodType):
            found, given = found.__func__, 1
        elif isinstance(found, FunctionType) and path.attributes:
            owner = reached(path._replace(attributes=path.attributes[:-1]), caller)
            held = EMPTY if isinstance(owner, ModuleType) else inspect.getattr_static(owner, path.attributes[-1], EMPTY)
            is_bound = held is found and not isinstance(owner, type)
            given = int(isinstance(held, classmethod) or is_bound)
        if found is EMPTY and path.attributes:  # a method, perhaps, of an object that only running the code would find
            yield from (_Callee(one, 1) for one in methods.get(path.attributes[-1], ()))
        elif id(found) in known:
            yield _Callee(known[id(found)], given)


def _lasting(call: Call, callee: _Callee, caller: Entered) -> Iterator[tuple[str, Any]]:
    """The arguments of a call that outlive it and may be changed, by the names that the callee has for them."""
    code = callee.entered.function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    count = len(call.arguments) - len(call.keywords)
    given: Iterable[tuple[str, Paths]] = (
        *zip(names[callee.given : code.co_argcount], call.arguments[:count], strict=False),
        *zip(call.keywords, call.arguments[count:], strict=True),
    )
    for name, paths in given:
        for path in paths if name in names else ():
            value = reached(path, caller)
            if _outlives(path, caller) and not is_plain(value) and not isinstance(value, (*TENSORS, FunctionType)):
                yield name, value


def _outlives(path: Path, caller: Entered) -> bool:
    """Whether what a path leads to is there before and after the function that it stands in."""
    if path.root != "argument":
        return path.root in ("global", "free", "import")
    is_own = caller.is_method and path.name in caller.function.__code__.co_varnames[:1]
    is_made = is_own and caller.function.__name__ in MAKES_ITSELF
    return not is_made and (is_own or caller.is_step or path.name in caller.arguments)
