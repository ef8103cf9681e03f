"""A fast check of whether anything in saved places of Python's state is another object than it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from itertools import chain
from operator import attrgetter, call, is_not, itemgetter
from typing import Any

from placer.trace.python_impure import EMPTY, contents


class Guard:
    """Places (items of containers, attributes, closure cells) with the objects that they held.

    The check compares identities, without a loop in Python; where an object is another one, `equal` decides.
    """

    def __init__(self, equal: Callable[[Any, Any], bool]) -> None:
        """equal: whether one plain value may stand for another."""
        self._equal = equal
        self._whole: list[Iterable[Any]] = []
        self._getters: list[Callable[[Any], tuple[Any, ...]]] = []
        self._holders: list[Any] = []
        self._alike: dict[str, tuple[list[Any], list[Any]]] = {}
        self._sized: list[Sized] = []
        self._sizes: list[int] = []
        self._checks: list[Callable[[], bool]] = []
        self._saved: tuple[list[Any], list[Any]] = ([], [])
        self._flat: list[Any] | None = None

    def __len__(self) -> int:
        return sum(map(len, self._saved)) + sum(len(saved) for _, saved in self._alike.values())

    def whole(self, container: Any) -> None:
        """Everything that a list, a deque or a view of a dict holds."""
        if container:
            self._whole.append(container)
            self._saved[0].extend(container)
        self.size(container)

    def named(self, holder: Mapping[str, Any], names: Iterable[str]) -> None:
        """These entries of a dict, of a module or of a class."""
        wanted = tuple(names)
        if wanted:
            wanted = wanted * 2 if len(wanted) == 1 else wanted  # for one name, itemgetter gives no tuple
            self._get(itemgetter(*wanted), holder)

    def attributes(self, thing: Any, names: Iterable[str]) -> None:
        """These attributes of an object that has slots."""
        wanted = tuple(names)
        if wanted:
            self._get(attrgetter(*(wanted * 2 if len(wanted) == 1 else wanted)), thing)

    def alike(self, name: str, thing: Any) -> None:
        """An attribute that many objects of one class have."""
        things, saved = self._alike.setdefault(name, ([], []))
        things.append(thing)
        saved.append(getattr(thing, name))

    def cell(self, cell: Any) -> None:
        """A cell of a closure."""
        if contents(cell) is EMPTY:
            self.check(lambda: contents(cell) is EMPTY)
        else:
            self.alike("cell_contents", cell)

    def size(self, sized: Sized) -> None:
        """How many items there are."""
        self._sized.append(sized)
        self._sizes.append(len(sized))

    def check(self, holds: Callable[[], bool]) -> None:
        """Something that only a call finds out."""
        self._checks.append(holds)

    def holds(self) -> bool:
        """Whether all is as it was saved."""
        if self._flat is None:
            alike = [value for _, saved in self._alike.values() for value in saved]
            self._flat = [*self._saved[0], *self._saved[1], *alike]
        if list(map(len, self._sized)) != self._sizes:
            return False
        try:
            if any(map(is_not, self._live(), self._flat)) and not self._all_equal():
                return False
        except (KeyError, AttributeError, ValueError, RuntimeError):  # a place is gone, or is being written
            return False
        return all(check() for check in self._checks)

    def _live(self) -> Iterable[Any]:
        held = chain.from_iterable(map(call, self._getters, self._holders))
        alike = chain.from_iterable(map(attrgetter(name), things) for name, (things, _) in self._alike.items())
        return chain(chain.from_iterable(self._whole), held, alike)

    def _all_equal(self) -> bool:
        flat = self._flat
        assert flat is not None
        for i, value in enumerate(self._live()):
            if value is not flat[i]:
                if not self._equal(value, flat[i]):
                    return False
                flat[i] = value
        return True

    def _get(self, getter: Callable[[Any], tuple[Any, ...]], holder: Any) -> None:
        self._getters.append(getter)
        self._holders.append(holder)
        self._saved[1].extend(getter(holder))
