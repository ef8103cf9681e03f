"""`placer` and `python -m placer`: the command line, or one line about what hides it."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress

from placer import load
from placer.errors import BadInputError

BY_SIGNAL = 128  # an exit code is this plus the number of the signal


def main() -> None:
    """Run the command line."""
    try:
        run = load("experiments.cli.app", "main")
    except BadInputError as error:
        print(f"placer: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:  # before there is a handler
        print("placer: interrupted.", file=sys.stderr)
        sys.exit(130)
    try:
        run()
    except SystemExit as end:
        if isinstance(end.code, int) and end.code > BY_SIGNAL:
            _end(end.code)
        raise


def _end(code: int) -> None:
    """End this process without shutting Python down. A signal interrupts code that waits for a thread; if the thread is
    still in TensorFlow during the shutdown, it may crash the process (SIGSEGV, exit code -11).
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
