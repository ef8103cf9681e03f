"""One line, as for all bad input, for what typer refuses: an unknown command or option, a value of another type."""

from __future__ import annotations

from typing import Any

import typer

from placer.errors import BadInputError

# typer comes with its own copy of click or uses click itself, depending on its release, and names few of its errors.
ClickException: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def run_app(app: typer.Typer) -> int:
    """Run the command that was given; return its exit code. A command without arguments that needs some shows its help.

    Raises BadInputError if typer refuses how it was called, and what the command itself raises.
    """
    try:
        code = app(standalone_mode=False)
    except ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            return int(error.exit_code)
        raise BadInputError(usage_line(error)) from None
    return code if isinstance(code, int) else 0


def usage_line(error: Any) -> str:
    """A line that says what is wrong, in which command, and where help is. error: a ClickException."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "placer"
    said = " ".join(error.format_message().split()).rstrip(".")
    mark = " See" if said.endswith("?") else "; see"
    return f"{said[:1].lower()}{said[1:]}{mark} {command} --help."
