"""The files that `search --report` writes: which kind, by their names."""

from __future__ import annotations

from pathlib import Path

from placer.errors import BadInputError

PAGE, TABLE = (".html", ".htm"), ".md"


def is_page(report: Path | None) -> bool:
    """Whether it is to be a page with figures."""
    return report is not None and report.suffix.lower() in PAGE


def check_report(report: Path | None) -> None:
    """Raises BadInputError, before any work is done, for a file whose ending is not a report's."""
    if report is not None and not is_page(report) and report.suffix.lower() != TABLE:
        raise BadInputError(f"{report}: a report ends in .html (a page) or .md (a table); give --report such a name.")
