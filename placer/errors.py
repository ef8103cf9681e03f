"""What can go wrong, said in one line: what, where, what next."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

LONGEST_LINE = 2000
LONGEST_NAME = 80
MOST_LISTED = 8


class PlacerError(Exception):
    """An honest failure: the command ends with exit code 1 and this one line."""

    exit_code = 1


class BadInputError(PlacerError):
    """The user's input cannot be used; the line says what, where and what next. Exit code 2."""

    exit_code = 2


def short(name: str) -> str:
    """`name` in quotes as an error line shows it: no line break, and the middle left out where it is long."""
    return repr(_cut(name, LONGEST_NAME))


def plain(name: str) -> str:
    """`short` without the quotes."""
    return short(name)[1:-1]


def listed(names: Collection[str]) -> str:
    """The first few of `names`, and how many more there are."""
    shown = [plain(name) for name in islice(names, MOST_LISTED)]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def one_line(text: str) -> str:
    """`text` fit for a terminal, whatever names it holds."""
    return _cut("".join(c if c.isprintable() else " " for c in text), LONGEST_LINE)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length // 2]}...{text[-(length // 2 - 3) :]}"
