"""The reads and writes of code, as paths to objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from placer.trace.python.code.paths import GIVEN, NO_PARAMETER, UNKNOWN, Path, Paths


class Asked(NamedTuple):
    """A read of an attribute by a name that is made at run time."""

    of: Paths
    begins: str = ""  # the beginning of the name
    is_own: bool = False  # whether it is read from the object's `__dict__`


class Call(NamedTuple):
    """A call with the paths of its arguments, those by keyword last."""

    callee: Paths
    arguments: tuple[Paths, ...]
    keywords: tuple[str, ...]


@dataclass
class Reads:
    """The uses of names by one code object and the functions defined in it."""

    paths: set[Path] = field(default_factory=set)  # read
    writes: list[Path] = field(default_factory=list)  # a name, attribute or item that is written, by its whole path
    sets: set[str] = field(default_factory=set)  # attributes that are written or deleted, of any object
    # Name of an attribute that is read or written, or constant that may be such a name -> its objects; unknown for any.
    owners: dict[str, set[Path]] = field(default_factory=dict)
    globals: set[str] = field(default_factory=set)
    catches: list[Paths] = field(default_factory=list)  # what its `except` clauses name; unknown for a bare one
    reflects: bool = False  # whether it may read attributes that it does not name
    identities: list[tuple[Paths, Paths]] = field(default_factory=list)  # pairs that it compares by `is`
    equates: bool = False  # whether it compares two values, no constants, by `==` and the like, or by `in`
    asked: list[Asked] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    texts: list[Paths] = field(default_factory=list)  # what it makes text of
    remainders: list[tuple[Paths, Paths]] = field(default_factory=list)  # the sides of `%`, which may format a text
    keeps_text: bool = False  # whether a local name may stand for a text
    passed: set[Path] = field(default_factory=set)  # objects of which it does more than read an attribute

    def add_name(self, name: str, owner: Paths | None = None) -> None:
        """Note a name that is read of `owner`; None if it may be read of anything, or is written."""
        self.owners.setdefault(name, set()).update({UNKNOWN} if owner is None else owner)

    def compares(self, own: str = "") -> bool:
        """Whether code compares by `is` two values that may be leaves of the step's call. own: the first parameter of a
        method, which is no such leaf.
        """
        return any(all(_is_given(side, own) for side in pair) for pair in self._of_leaves(own))

    def asks(self, own: str = "") -> bool:
        """Whether code compares by `is` a value that may be a leaf of the step's call with another value."""
        return bool(self._of_leaves(own))

    def _of_leaves(self, own: str) -> list[tuple[Paths, Paths]]:
        return [pair for pair in self.identities if any(_is_leaf(side, own) for side in pair)]


def _is_given(paths: Paths, own: str) -> bool:
    """Whether one of `paths` may lead to an argument of the step, or into one. own: as in `Reads.compares`."""
    given = (path for path in paths if path.root in GIVEN and path.attributes[-1:] != ("__class__",))
    return any(not (own and path.name == own) for path in given)


def _is_leaf(paths: Paths, own: str) -> bool:
    """As `_is_given`, but without objects that the code made, and of which nothing else is known."""
    return _is_given(frozenset(path for path in paths if path.root != "fresh" or path.name not in NO_PARAMETER), own)
