"""What a step's code seeks in objects: names of attributes, as far as the code shows them."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from placer.trace.python.code import UNKNOWN, Asked, reads_of
from placer.trace.python.impure import Entered, reached
from placer.trace.python.kinds import EMPTY, answers_any_name, is_library
from placer.trace.signature import Same


@dataclass(frozen=True)
class Sought:
    """What a step's code reads of objects, as far as known."""

    names: frozenset[str] = frozenset()  # attributes that it names
    reflects: bool = False  # whether it may read any other that an object itself has
    # A class or a module of which it reads what has a name that is made at run time, and what such a name begins with;
    # None for any class and module.
    asked: frozenset[tuple[Same | None, str]] = frozenset()

    def asks(self, owner: Any, name: str) -> bool:
        """Whether a name of a class or a module, but for what Python itself keeps there, may be made at run time."""
        return not name.startswith("__") and any(
            (of is None or of.held is owner) and name.startswith(begins) for of, begins in self.asked
        )

    def joined(self, others: Iterable[Sought]) -> Sought:
        """What any of them seeks."""
        parts = [self, *others]
        names, asked = (part.names for part in parts), (part.asked for part in parts)
        return Sought(frozenset().union(*names), any(part.reflects for part in parts), frozenset().union(*asked))


def sought_by(entered: Entered) -> Sought:
    """What a function's own code reads of objects."""
    reads = reads_of(entered.function.__code__)
    asked = frozenset(one for asked in reads.asked for one in _asked(asked, entered))
    return Sought(frozenset(reads.names), reads.reflects, asked)


def _asked(asked: Asked, entered: Entered) -> Iterator[tuple[Same | None, str]]:
    """What a function reads by a name that is made at run time, as in `Sought.asked`."""
    for path in asked.of or {UNKNOWN}:
        found = reached(path, entered)
        kind = found if isinstance(found, type) else type(found)
        if isinstance(found, types.ModuleType):
            yield Same(found), asked.begins
        elif found is EMPTY or (kind is not found and answers_any_name(kind)):
            if not asked.is_own:
                yield None, asked.begins
        elif kind is found or not asked.is_own:
            yield from ((Same(base), asked.begins) for base in kind.__mro__ if not is_library(base.__module__))
