"""What code reads and writes, as paths to objects: from a name, through attributes and items."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

FIELDS, ATTRIBUTES = re.compile(r"\{([^{}!:]*)"), re.compile(r"\.([^\W\d]\w*)")
ITEM = "[]"  # stands for any item of a container among the attributes of a path


class Path(NamedTuple):
    """How code gets at an object: from a name, through attributes."""

    root: str  # "global", "free" (of the enclosing function), "argument", "import", "fresh", "unknown", or a string's:
    # "constant", whose text the name is, or "begins", which begins with the name. What is fresh has the name of the
    # parameter that it may have been taken out of, or that of CONSTANT.
    name: str = ""
    attributes: tuple[str, ...] = ()

    def then(self, attribute: str) -> Path:
        """The path to an attribute of this object."""
        if self.root in NOWHERE:  # then a call's name is all that is known
            parameter = "" if self.root in TEXT_ROOTS else self.name
            return Path("unknown" if self.root == "unknown" else "fresh", parameter, (attribute,))
        return self._replace(attributes=(*self.attributes, attribute))

    def __str__(self) -> str:
        return ".".join((self.name, *self.attributes)).replace(f".{ITEM}", ITEM)


FRESH, UNKNOWN = Path("fresh"), Path("unknown")
CONSTANT = Path("fresh", "=")  # None, a number and the like
TEXT_ROOTS = ("constant", "begins")
NOWHERE = ("fresh", "unknown", *TEXT_ROOTS)
GIVEN = ("argument", "fresh", "unknown")  # roots of what may be an argument of the step
GIVES_ITEM = ("get", "pop")  # methods of containers
UNSEEN = "?"  # stands for the name of the parameter where it is not known
NO_PARAMETER = frozenset({"", CONSTANT.name})
Paths = frozenset[Path]


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


def is_constant(path: Path) -> bool:
    """Whether a path leads to a constant in the code."""
    return path.root == "constant" or path == CONSTANT


def _is_given(paths: Paths, own: str) -> bool:
    """Whether one of these may be an argument of the step, or come out of one. own: as in `Reads.compares`."""
    given = (path for path in paths if path.root in GIVEN and path.attributes[-1:] != ("__class__",))
    return any(not (own and path.name == own) for path in given)


def _is_leaf(paths: Paths, own: str) -> bool:
    """As `_is_given`, but not where all that is known is that code made it."""
    return _is_given(frozenset(path for path in paths if path.root != "fresh" or path.name not in NO_PARAMETER), own)


def taken_from(paths: Paths) -> Paths:
    """What a call that gives on what it is given takes out of one of these."""
    names = {UNSEEN if path.root == "unknown" else path.name for path in paths if path.root in GIVEN}
    return frozenset(Path("fresh", name) for name in names - NO_PARAMETER) or frozenset({FRESH})


def held_by(callee: Paths) -> Paths:
    """What a method of a container gives of what that holds: an item, or the container as the view of its values."""
    found = set()
    for path in callee:
        if path.attributes and path.attributes[-1] in (*GIVES_ITEM, "values"):
            container = path._replace(attributes=path.attributes[:-1])
            found.add(container if path.attributes[-1] == "values" else container.then(ITEM))
    return frozenset(found)


def last_name(path: Path) -> str:
    """The name of what a path leads to."""
    return path.attributes[-1] if path.attributes else path.name if path.root in ("global", "import") else ""


def attributes_shown(text: str) -> frozenset[str]:
    """The attributes that a text for `str.format` names: those of "{0.rate}"."""
    return frozenset(name for field in FIELDS.findall(text) for name in ATTRIBUTES.findall(field))


def is_text(path: Path) -> bool:
    """Whether a path leads to a string of which code shows how it begins."""
    return path.root in TEXT_ROOTS


def beginning(left: Paths, ends: str = "") -> Paths:
    """What is known of a string that begins with one of these; `ends`: where what is known of it ends."""
    texts = {path.name if path.root in TEXT_ROOTS else "" for path in left}
    return frozenset(Path("begins", text.partition(ends)[0] if ends else text) for text in texts)
