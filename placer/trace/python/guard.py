"""A fast check of whether any saved place of Python's state now holds another object."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sized
from ctypes import string_at
from itertools import repeat
from operator import attrgetter, is_, itemgetter
from typing import Any, NamedTuple

from placer.trace.python.entered_functions import contents
from placer.trace.python.kinds import EMPTY


class _Alike(NamedTuple):
    """Places that are read by the same getter: in each holder, one place per name of the getter."""

    get: Callable[[Any], Any]
    holders: list[Any]
    saved: list[Any]


class Guard:
    """Places (items of containers, attributes, closure cells) with the objects that they held.

    The check compares all identities at once; if an object is another one, `equal` decides.
    """

    def __init__(self, equal: Callable[[Any, Any], bool]) -> None:
        """equal: whether one plain value may stand for another."""
        self._equal = equal
        self._whole: list[Iterable[Any]] = []
        self._items: list[Any] = []  # items of these, as they were
        self._single: dict[tuple[type, str], _Alike] = {}
        self._several: dict[tuple[type, tuple[str, ...]], _Alike] = {}
        self._empty: list[Sized] = []
        self._sized: list[Sized] = []
        self._sizes: list[int] = []
        self._things: list[Any] = []
        self._classes: list[type] = []  # of these
        self._owners: list[Any] = []
        self._dicts: list[dict[str, Any]] = []  # of these
        self._namespaces: list[Mapping[str, Any]] = []
        self._latest: list[Any] = []  # the latest name in each of these
        self._checks: list[Callable[[], bool]] = []
        self._flat: list[Any] | None = None  # all objects as they were; held, so that no other gets their addresses
        self._identities: Any = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def whole(self, container: Any) -> None:
        """Save everything that a list, a deque or a view of a dict holds."""
        if container:
            self._whole.append(container)
            before = len(self._items)
            self._items += container
            self._count += len(self._items) - before
        self.size(container)

    def named(self, holder: Mapping[str, Any], names: Iterable[str]) -> None:
        """Save these entries of a dict, of a module or of a class."""
        self._get(itemgetter, holder, tuple(names))

    def attributes(self, thing: Any, names: Iterable[str]) -> None:
        """Save these attributes of an object that has slots."""
        self._get(attrgetter, thing, tuple(names))

    def cell(self, cell: Any) -> None:
        """Save what a cell of a closure holds, or that it is empty."""
        if contents(cell) is EMPTY:
            self.check(lambda: contents(cell) is EMPTY)
        else:
            self.attributes(cell, ["cell_contents"])

    def size(self, sized: Sized) -> None:
        """Save the number of items."""
        if len(sized) == 0 and not hasattr(type(sized), "__bool__"):
            self._empty.append(sized)
        else:
            self._sized.append(sized)
            self._sizes.append(len(sized))

    def names(self, held: Mapping[str, Any]) -> None:
        """Save which names a namespace has, as far as its size and its latest name tell."""
        self.size(held)
        self._namespaces.append(held)
        self._latest.append(next(reversed(held), None))  # type: ignore[arg-type]

    def class_of(self, thing: Any) -> None:
        """Save the class of an object."""
        self._things.append(thing)
        self._classes.append(type(thing))

    def dict_of(self, thing: Any, held: dict[str, Any]) -> None:
        """Save which dict, `held`, has the attributes of an object."""
        self._owners.append(thing)
        self._dicts.append(held)

    def check(self, holds: Callable[[], bool]) -> None:
        """Add a check that needs a call: `holds` returns whether the state is as it was."""
        self._checks.append(holds)

    def holds(self) -> bool:
        """Whether everything is as it was saved."""
        if self._flat is None:
            self._keep(self._saved())
        try:
            if any(self._empty) or list(map(len, self._sized)) != self._sizes or not self._are_whole():
                return False
            live = self._live()
            if _identities(live) != self._identities and not self._all_equal(live):
                return False
            return all(check() for check in self._checks)
        except Exception:  # a place does not exist any more, or is being written, or an object of the user's raises it
            return False

    def _are_whole(self) -> bool:
        """Whether objects have the same classes and dicts, and namespaces the same latest names, as before."""
        dicts = map(object.__getattribute__, self._owners, repeat("__dict__"))
        return (
            list(map(type, self._things)) == self._classes
            and all(map(is_, dicts, self._dicts))
            and [next(reversed(held), None) for held in self._namespaces] == self._latest  # type: ignore[arg-type]
        )

    def _live(self) -> list[Any]:
        """The objects that the places hold now."""
        found: list[Any] = []
        for container in self._whole:
            found += container
        for alike in self._single.values():
            found += map(alike.get, alike.holders)
        for alike in self._several.values():
            for values in map(alike.get, alike.holders):
                found += values
        return found

    def _saved(self) -> list[Any]:
        """The objects that the places held, in the same order."""
        groups = [*self._single.values(), *self._several.values()]
        return [*self._items, *(value for group in groups for value in group.saved)]

    def _keep(self, flat: list[Any]) -> None:
        self._flat, self._identities = flat, _identities(flat)

    def _all_equal(self, live: list[Any]) -> bool:
        assert self._flat is not None
        if len(live) != len(self._flat):
            return False
        for value, known in zip(live, self._flat, strict=True):
            if value is not known and not self._equal(value, known):
                return False
        self._keep(live)
        return True

    def _get(self, getter: type[itemgetter[Any]] | type[attrgetter[Any]], holder: Any, names: tuple[str, ...]) -> None:
        if not names:
            return
        if len(names) == 1:  # then a getter returns no tuple
            alike = self._single.setdefault((getter, names[0]), _Alike(getter(*names), [], []))
            alike.saved.append(alike.get(holder))
        else:
            alike = self._several.setdefault((getter, names), _Alike(getter(*names), [], []))
            alike.saved.extend(alike.get(holder))
        alike.holders.append(holder)
        self._count += len(names)


def _addresses(values: list[Any]) -> bytes:
    """The addresses of objects: a copy of the references in a tuple, 100 times as fast as `id` of each."""
    held = tuple(values)
    return string_at(id(held) + tuple.__basicsize__, len(held) * tuple.__itemsize__)


def _ids(values: list[Any]) -> list[int]:
    return list(map(id, values))


def _finds_addresses() -> bool:
    """Whether this Python keeps a tuple's references within the tuple, in order, and an object's id is its address."""
    if sys.implementation.name != "cpython" or tuple.__itemsize__ != struct.calcsize("P"):
        return False
    things: list[Any] = [object(), None, object(), ()]
    return struct.unpack(f"{len(things)}P", _addresses(things)) == tuple(map(id, things))


_identities: Callable[[list[Any]], Any] = _addresses if _finds_addresses() else _ids
