"""Finds what a step's code seeks in objects: names of attributes, as far as the code shows them."""

from __future__ import annotations

import inspect
import types
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from placer.trace.python.code.bytecode import reads_of
from placer.trace.python.code.paths import ITEM, TEXT_ROOTS, UNKNOWN, Path
from placer.trace.python.code.reads import Asked
from placer.trace.python.entered_functions import Entered, reached
from placer.trace.python.kinds import (
    EMPTY,
    TEXTS,
    answers_any_name,
    is_library,
    is_made_by_library,
    is_user_class,
    unproxied,
)
from placer.trace.signature import Same


@dataclass(frozen=True)
class Sought:
    """The attributes that a step's code reads of objects, as far as known."""

    names: frozenset[str] = frozenset()  # attributes that the code names
    sets: frozenset[str] = frozenset()  # names that it writes or deletes
    reflects: bool = False  # whether it may read any other attribute that an object itself has
    equates: bool = False  # whether it may compare two objects of one class by `==` and the like
    # (class or module of which the code reads an attribute by a name that is made at run time, beginning of the name);
    # None for any class and module.
    asked: frozenset[tuple[Same | None, str]] = frozenset()
    texts: frozenset[Same | None] = frozenset()  # classes of whose objects it makes text; None for any class
    whole: frozenset[Same] = frozenset()  # classes whose texts may show any attribute
    # (module, attribute that the code reads of it and that it does not hold); None for any attribute.
    lacked: frozenset[tuple[Same, str | None]] = frozenset()

    def asks(self, owner: Any, name: str) -> bool:
        """Whether code may read `name` of the class or module `owner` by a name that is made at run time. Names that
        Python itself keeps there do not count.
        """
        return not name.startswith("__") and any(
            (of is None or of.held is owner) and name.startswith(begins) for of, begins in self.asked
        )

    def lacked_by(self, module: types.ModuleType) -> frozenset[str | None]:
        """The attributes that code reads of a module and that the module does not hold; None among them for any."""
        return frozenset(name for of, name in self.lacked if of.held is module)

    def shows(self, kind: type, method: Any) -> bool:
        """Whether code makes text of objects of a class by `method`. A method that a library has made for the class,
        such as a dataclass's, shows all fields: it counts only if such an object is known to become text.
        """
        is_named = not TEXTS.isdisjoint(self.names)
        return is_named or Same(kind) in self.texts or (None in self.texts and not is_made_by_library(method))

    def is_shown(self, kind: type) -> bool:
        """Whether an object of a class, or of one that inherits from it, is known to become text."""
        is_named = not TEXTS.isdisjoint(self.names)
        return is_named or any(one is not None and kind in one.held.__mro__ for one in self.texts)

    def shows_all(self, kind: type) -> bool:
        """Whether the text of an object of a class may show any attribute of it."""
        return any(Same(base) in self.whole for base in kind.__mro__) if self.whole else False

    def joined(self, others: Iterable[Sought]) -> Sought:
        """Everything that this one or any of `others` seeks."""
        parts = [self, *others]
        columns = ([getattr(part, one.name) for part in parts] for one in fields(Sought))
        found: list[Any] = [frozenset().union(*c) if isinstance(c[0], frozenset) else any(c) for c in columns]
        return Sought(*found)


def sought_by(entered: Entered) -> Sought:
    """The attributes that a function's own code reads of objects."""
    reads = reads_of(entered.function.__code__)
    asked = frozenset(one for asked in reads.asked for one in _asked(asked, entered))
    texts = frozenset(one for paths in reads.texts for path in paths for one in _shown(path, entered))
    texts |= frozenset(one for left, right in reads.remainders for one in _shown_by_remainder(left, right, entered))
    found = (_lacked(path, path in reads.passed, entered) for path in reads.paths | reads.passed)
    lacked = frozenset(one for one in found if one is not None and not is_library(one[0].held.__name__))
    names = frozenset(name for name, owners in reads.owners.items() if not _is_of_libraries(owners, entered))
    names |= {"__class__"} if "type" in reads.globals else set()
    written = frozenset(reads.sets)
    if reads.reflects and entered.function.__name__ in TEXTS and entered.owner is not None:  # on its own object
        kinds = type(entered.owner).__mro__
        maker = next((kind for kind in kinds if entered.function.__name__ in vars(kind)), kinds[0])
        return Sought(names, written, False, reads.equates, asked, texts, frozenset({Same(maker)}), lacked)
    return Sought(names, written, reads.reflects, reads.equates, asked, texts, lacked=lacked)


def passed_on(module: types.ModuleType) -> Sought:
    """What is sought in a module that code does not reach by a name: any attribute of it may be read."""
    return Sought(lacked=frozenset({(Same(module), None)}))


def _is_of_libraries(owners: set[Path], entered: Entered) -> bool:
    """Whether a name is read only of modules of libraries. Such a read (`keras.losses`) has nothing to do with objects
    of the user's that have an attribute of the same name (`self.losses`).
    """
    found = [reached(path, entered) for path in owners]
    return bool(found) and all(
        issubclass(type(one), types.ModuleType) and bool(is_library(str(one.__name__))) for one in found
    )


def _lacked(path: Path, is_passed: bool, entered: Entered) -> tuple[Same, str | None] | None:
    """(module, attribute) if a path reads an attribute that a module does not hold, as in `Sought.lacked`; else None.
    Runs no code of the module. is_passed: whether code does more with the object than read an attribute of it.
    """
    owner = reached(path._replace(attributes=()), entered)
    for attribute in path.attributes:
        if not issubclass(type(owner), types.ModuleType):
            return None
        if attribute == ITEM:  # what a function of the module returns
            return None
        if attribute not in (held := vars(owner)):
            is_of_class = inspect.getattr_static(type(owner), attribute, EMPTY) is not EMPTY
            return None if is_of_class else (Same(owner), attribute)
        owner = held[attribute]
    is_module = is_passed and issubclass(type(owner), types.ModuleType)
    return (Same(owner), None) if is_module else None


def _shown(path: Path, entered: Entered) -> Iterator[Same | None]:
    """The class of the object that a path leads to, if that is an object of the user's; None if it may be any."""
    if path.root in TEXT_ROOTS:
        return
    found = unproxied(reached(path, entered))
    if found is EMPTY or isinstance(found, (list, tuple, dict, set, frozenset, deque)):
        yield None
    elif is_user_class(type(found)):
        yield Same(type(found))


def _shown_by_remainder(left: frozenset[Path], right: frozenset[Path], entered: Entered) -> Iterator[Same | None]:
    """As `_shown`, for the right side of `left % right`. If the code made the left side, which then is a number in most
    programs, and nothing else is known of it, unknown objects on the right side do not count.
    """
    is_text = any(_may_be_text(path, entered) for path in left)
    is_made = any(path.root in ("fresh", "unknown") for path in left)
    if is_text or is_made:
        found = (one for path in right for one in _shown(path, entered))
        yield from (one for one in found if is_text or one is not None)


def _may_be_text(path: Path, entered: Entered) -> bool:
    """Whether a path leads to a text, as far as known."""
    if path.root in ("fresh", "unknown", *TEXT_ROOTS):
        return path.root in TEXT_ROOTS
    found = reached(path, entered)
    return found is EMPTY or issubclass(type(found), (str, bytes))


def _asked(asked: Asked, entered: Entered) -> Iterator[tuple[Same | None, str]]:
    """(class or module, beginning of a name) that a function reads by a name made at run time: see `Sought.asked`."""
    for path in asked.of or {UNKNOWN}:
        found = unproxied(reached(path, entered))
        kind = found if isinstance(found, type) else type(found)
        if isinstance(found, types.ModuleType):
            yield Same(found), asked.begins
        elif found is EMPTY or (kind is not found and answers_any_name(kind)):
            if not asked.is_own:
                yield None, asked.begins
        elif kind is found or not asked.is_own:
            yield from ((Same(base), asked.begins) for base in kind.__mro__ if not is_library(base.__module__))
