"""Consoles on which tables and progress are printed: all text is literal, neither markup nor the name of an emoji."""

from __future__ import annotations

from rich.console import Console


def literal_console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """Prints on stdout, or on stderr. A model called `[red]` or `:ok:` is shown as it is called."""
    return Console(stderr=stderr, quiet=quiet, markup=False, emoji=False, highlight=False)
