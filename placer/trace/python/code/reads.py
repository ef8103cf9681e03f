"""What code reads and writes, as paths to objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from placer.trace.python.code.paths import GIVEN, NO_PARAMETER, UNKNOWN, Path, Paths


class Asked(NamedTuple):
    """Code that reads an attribute by a name that is made at run time."""

    of: Paths
    begins: str = ""  # what the name begins with
    is_own: bool = False  # whether it is read from the `__dict__` of what it is asked of


class Call(NamedTuple):
    """A call with the paths of its arguments, those by keyword last."""

    callee: Paths
    arguments: tuple[Paths, ...]
    keywords: tuple[str, ...]


@dataclass
class Reads:
    """What one code object, and the functions defined in it, do with names."""

    paths: set[Path] = field(default_factory=set)  # read
    writes: list[Path] = field(default_factory=list)  # a name, attribute or item that is written, by its whole path
    sets: set[str] = field(default_factory=set)  # attributes that are written or deleted, of whatever
    # Of what, by the name of an attribute that is read or written, or a constant that may be one; unknown for any.
    owners: dict[str, set[Path]] = field(default_factory=dict)
    globals: set[str] = field(default_factory=set)
    catches: list[Paths] = field(default_factory=list)  # what its `except` clauses name; unknown for a bare one
    reflects: bool = False  # whether it may read attributes that it does not name
    identities: list[tuple[Paths, Paths]] = field(default_factory=list)  # what it asks by `is` if they are one
    equates: bool = False  # whether it compares by `==` and the like, or looks in a container for, no constant
    asked: list[Asked] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    texts: list[Paths] = field(default_factory=list)  # what it makes text of
    remainders: list[tuple[Paths, Paths]] = field(default_factory=list)  # the sides of `%`, which makes text of a text
    keeps_text: bool = False  # whether a local name may stand for a text
    passed: set[Path] = field(default_factory=set)  # what it does anything with but to read an attribute of it

    def add_name(self, name: str, owner: Paths | None = None) -> None:
        """Note a name that is read of an owner; None where it may be read of anything, or is written."""
        self.owners.setdefault(name, set()).update({UNKNOWN} if owner is None else owner)

    def compares(self, own: str = "") -> bool:
        """Whether it asks by `is` if two values, which may be leaves of the step's call, are one. own: the first
        parameter of a method, which is none.
        """
        return any(all(_is_given(side, own) for side in pair) for pair in self._of_leaves(own))

    def asks(self, own: str = "") -> bool:
        """Whether it asks by `is` if what may be a leaf of the step's call is another object."""
        return bool(self._of_leaves(own))

    def _of_leaves(self, own: str) -> list[tuple[Paths, Paths]]:
        return [pair for pair in self.identities if any(_is_leaf(side, own) for side in pair)]


def _is_given(paths: Paths, own: str) -> bool:
    """Whether one of these may be an argument of the step, or come out of one. own: as in `Reads.compares`."""
    given = (path for path in paths if path.root in GIVEN and path.attributes[-1:] != ("__class__",))
    return any(not (own and path.name == own) for path in given)


def _is_leaf(paths: Paths, own: str) -> bool:
    """As `_is_given`, but not where all that is known is that code made it."""
    return _is_given(frozenset(path for path in paths if path.root != "fresh" or path.name not in NO_PARAMETER), own)
