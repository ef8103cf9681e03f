"""`placer` and `python -m placer`: the command line, or one line about what hides it."""

from __future__ import annotations

import sys

from placer import load
from placer.errors import BadInputError


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
    run()


if __name__ == "__main__":
    main()
