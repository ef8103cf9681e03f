"""Paths by which code gets at an object: from a name, through attributes and items."""

from __future__ import annotations

from typing import NamedTuple

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


def last_name(path: Path) -> str:
    """The name of what a path leads to."""
    return path.attributes[-1] if path.attributes else path.name if path.root in ("global", "import") else ""


def is_constant(path: Path) -> bool:
    """Whether a path leads to a constant in the code."""
    return path.root == "constant" or path == CONSTANT


def is_text(path: Path) -> bool:
    """Whether a path leads to a string of which code shows how it begins."""
    return path.root in TEXT_ROOTS


def beginning(left: Paths, ends: str = "") -> Paths:
    """What is known of a string that begins with one of these; `ends`: where what is known of it ends."""
    texts = {path.name if path.root in TEXT_ROOTS else "" for path in left}
    return frozenset(Path("begins", text.partition(ends)[0] if ends else text) for text in texts)


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
