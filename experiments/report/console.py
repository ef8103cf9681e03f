"""Consoles for tables and progress. All text is printed literally, and never read as markup or the name of an emoji."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table


class LiteralConsole(Console):
    """A console whose tables fold what does not fit into a column. Rich would cut off the ends of figures and names."""

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich prints it."""
        for table in (shown for shown in objects if isinstance(shown, Table)):
            for column in table.columns:
                column.overflow = "fold"
        super().print(*objects, **options)


def literal_console(*, stderr: bool = False, quiet: bool = False) -> LiteralConsole:
    """A console on stdout or stderr. The name of a model called `[red]` or `:ok:` is shown as it is."""
    return LiteralConsole(stderr=stderr, quiet=quiet, markup=False, emoji=False, highlight=False)
