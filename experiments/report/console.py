"""Consoles for tables and progress. All text is printed literally, and never read as markup or the name of an emoji."""

from __future__ import annotations

from rich.console import Console


def literal_console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """A console on stdout or stderr. The name of a model called `[red]` or `:ok:` is shown as it is."""
    return Console(stderr=stderr, quiet=quiet, markup=False, emoji=False, highlight=False)
