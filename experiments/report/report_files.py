"""The files that commands write at their end, each by itself, and the kind of a report, which its name says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from placer.errors import BadInputError, try_each

PAGE, TABLE = (".html", ".htm"), ".md"


def is_page(report: Path | None) -> bool:
    """Whether the report is to be a page with figures."""
    return report is not None and report.suffix.lower() in PAGE


def check_report(report: Path | None) -> None:
    """Raises BadInputError, before any work is done, for a file whose ending is not a report's."""
    if report is not None and not is_page(report) and report.suffix.lower() != TABLE:
        raise BadInputError(f"{report}: a report ends in .html (a page) or .md (a table); give --report such a name.")


def write_each(*files: tuple[Path | None, Callable[[Path], object]]) -> None:
    """Write each file that was asked for with its function, even if others fail. Raises like `raise_last`."""
    try_each(*(partial(write, path) for path, write in files if path is not None))
