"""Errors whose message is one line (what, where, what next), and helpers that format and print such lines."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

LONGEST_LINE = 2000
LONGEST_NAME = 80
MOST_LISTED = 8
BEFORE = ("Graph execution error", "Detected at", "<stack traces", 'File "', "Node:")  # lines about where, not what
ASSERTED = "assertion failed"
SEVERAL = "root error(s) found"  # the lines after it list these errors, as (0), (1), ...
BENEATH = ("placer", "search", "tensorflow", "keras", "contextlib")  # packages whose frames `warn` skips
H = TypeVar("H", bound=Hashable)


class PlacerError(Exception):
    """An operation failed: the command prints this one line and ends with exit code 1."""

    exit_code = 1


class BadInputError(PlacerError):
    """The user's input cannot be used. Exit code 2."""

    exit_code = 2


def short(name: str) -> str:
    """`name` quoted for an error line: line breaks escaped, the middle of a long one cut out."""
    return repr(_cut(name, LONGEST_NAME))


def plain(name: str) -> str:
    """`short` without the quotes."""
    return short(name)[1:-1]


def listed(names: Collection[str]) -> str:
    """The first MOST_LISTED of `names`, and how many more there are."""
    shown = [plain(name) for name in islice(names, MOST_LISTED)]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def first_twice(values: Sequence[H]) -> H | None:
    """The first of `values` that occurs for a second time; None if each occurs once."""
    if len(set(values)) == len(values):
        return None
    seen: set[H] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None


def one_line(text: str) -> str:
    """`text` on one line, safe to print: unprintable characters blanked, LONGEST_LINE characters at most."""
    return _cut("".join(c if c.isprintable() else " " for c in text), LONGEST_LINE)


def what_failed(error: BaseException) -> str:
    """The line of a library's message that says what failed; TensorFlow begins some messages with where it failed."""
    lines = [line.strip() for line in str(getattr(error, "message", error)).splitlines() if line.strip()]
    told = [line.removeprefix("(0) ") for line in lines if not line.startswith(BEFORE) and SEVERAL not in line]
    asserted = [line for line in told if ASSERTED in line]
    return (asserted or told or lines or ["it does not say why"])[0]


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length // 2]}...{text[-(length // 2 - 3) :]}"


def tell(error: Exception) -> None:
    """Print the error's line on stderr, unless the error has no message."""
    if str(error):
        print(one_line(f"placer: {error}"), file=sys.stderr)


def tell_all(errors: Iterable[Exception]) -> None:
    """Call `tell` for each error."""
    for error in errors:
        tell(error)


def warn(sentence: str) -> None:
    """Warn about what happened to a program; the warning names the program's own line that led here."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in BENEATH:
        level, frame = level + 1, frame.f_back
    warnings.warn(f"placer: {sentence}", stacklevel=level)


def tried(*ways: Callable[[], object]) -> list[Exception]:
    """Call each of `ways`, even if others fail; return the errors."""
    failures: list[Exception] = []
    for way in ways:
        try:
            way()
        except Exception as error:
            failures.append(error)
    return failures


def raise_last(failures: Sequence[Exception]) -> None:
    """Raises the last of `failures`, if there are any, after printing the others on stderr.

    Errors other than PlacerError are sorted last, because their traceback is needed.
    """
    if failures:
        *others, last = sorted(failures, key=lambda error: not isinstance(error, PlacerError))
        tell_all(others)
        raise last


def try_each(*ways: Callable[[], object]) -> None:
    """Call each of `ways`, even if others fail. Raises like `raise_last`."""
    raise_last(tried(*ways))
