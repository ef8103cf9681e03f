"""Paths by which code reaches an object: from a name, through attributes and items."""

from __future__ import annotations

from typing import NamedTuple

ITEM = "[]"  # stands for any item of a container among the attributes of a path


class Path(NamedTuple):
    """A path by which code reaches an object: from a name, through attributes."""

    root: str  # "global", "free" (of the enclosing function), "argument", "import", "fresh" (made by the code),
    # "unknown", or, for a string, "constant" (the name is its text) or "begins" (its text begins with the name). The
    # name of a fresh object is that of the parameter out of which it may have been taken, or that of CONSTANT.
    name: str = ""
    attributes: tuple[str, ...] = ()

    def then(self, attribute: str) -> Path:
        """The path to an attribute of this object."""
        if self.root in NOWHERE:  # then only the latest attribute's name is known
            parameter = "" if self.root in TEXT_ROOTS else self.name
            return Path("unknown" if self.root == "unknown" else "fresh", parameter, (attribute,))
        return self._replace(attributes=(*self.attributes, attribute))

    def __str__(self) -> str:
        return ".".join((self.name, *self.attributes)).replace(f".{ITEM}", ITEM)


FRESH, UNKNOWN = Path("fresh"), Path("unknown")
CONSTANT = Path("fresh", "=")  # None, a number and the like
TEXT_ROOTS = ("constant", "begins")
NOWHERE = ("fresh", "unknown", *TEXT_ROOTS)
GIVEN = ("argument", "fresh", "unknown")  # roots of objects that may be an argument of the step
GIVES_ITEM = ("get", "pop")  # methods of containers that return an item
UNSEEN = "?"  # stands for the name of a parameter that is not known
NO_PARAMETER = frozenset({"", CONSTANT.name})
Paths = frozenset[Path]


def last_name(path: Path) -> str:
    """The last name of a path; "" if it has no attribute, and does not begin at a global or an import."""
    return path.attributes[-1] if path.attributes else path.name if path.root in ("global", "import") else ""


def is_constant(path: Path) -> bool:
    """Whether a path leads to a constant in the code."""
    return path.root == "constant" or path == CONSTANT


def is_text(path: Path) -> bool:
    """Whether a path leads to a string whose beginning the code shows."""
    return path.root in TEXT_ROOTS


def beginning(left: Paths, ends: str = "") -> Paths:
    """The paths of a string that begins with one of the strings `left`. ends: the text at which the known part of such
    a beginning ends; "" if all of it is known.
    """
    texts = {path.name if path.root in TEXT_ROOTS else "" for path in left}
    return frozenset(Path("begins", text.partition(ends)[0] if ends else text) for text in texts)


def taken_from(paths: Paths) -> Paths:
    """The paths of the result of a call that returns one of its arguments `paths`, or something out of one."""
    names = {UNSEEN if path.root == "unknown" else path.name for path in paths if path.root in GIVEN}
    return frozenset(Path("fresh", name) for name in names - NO_PARAMETER) or frozenset({FRESH})


def held_by(callee: Paths) -> Paths:
    """The paths of the result of a container's method `callee`: an item, or the container itself for `values`."""
    found = set()
    for path in callee:
        if path.attributes and path.attributes[-1] in (*GIVES_ITEM, "values"):
            container = path._replace(attributes=path.attributes[:-1])
            found.add(container if path.attributes[-1] == "values" else container.then(ITEM))
    return frozenset(found)
