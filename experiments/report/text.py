"""Names, shares and Markdown tables as text; times and sizes are in placer/number_format.py."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Row = TypeVar("Row")
MOST = 4000  # letters of a line
FEW = 8  # idle devices that a table lists


def percent(share: float | None) -> str:
    """A share with one digit after the point; None is "-"."""
    return "-" if share is None else f"{share:.1%}"


def printable(name: str, length: int) -> str:
    """`name` without control characters. If it is too long, its end is kept, because op names differ in their ends."""
    clean = "".join(c if c.isprintable() else "?" for c in name[-length - 1 :])
    return clean if len(clean) <= length else "~" + clean[-length + 1 :]


def cell(text: object, length: int = 60) -> str:
    """A name in a table or its title, printable and cut."""
    return printable(str(text), length)


def split_idle(rows: Sequence[Row], is_idle: Callable[[Row], bool]) -> tuple[list[Row], int]:
    """The rows to show in a table of devices, and how many idle ones are left out: none unless more than FEW are."""
    busy = [row for row in rows if not is_idle(row)]
    idle = len(rows) - len(busy)
    return (busy, idle) if idle > FEW else (list(rows), 0)


def _escaped(text: str) -> str:
    """`text`, changed so that it ends neither a cell nor a row."""
    return re.sub(r"(?<!\\)\|", r"\\|", text).replace("\n", " ")


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]] = (), left: Iterable[int] = (0,)) -> list[str]:
    """The lines of a Markdown table; a row that is too short is filled up with empty cells.

    left: the columns that are aligned to the left, the others to the right.
    """
    aligned = set(left)
    ruler = ["---" if i in aligned else "---:" for i in range(len(heads))]
    whole = [[*map(_escaped, row), *[""] * (len(heads) - len(row))] for row in rows]
    return ["| " + " | ".join(row) + " |" for row in (heads, ruler, *whole)]
