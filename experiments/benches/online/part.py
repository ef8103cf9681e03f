"""One part of the bench `online`, in a process of its own: `python -m experiments.benches.online.part NAME SETTINGS`.

SETTINGS: a JSON object of the part's settings, for instance '{"steps": 20}'. Prints one JSON line.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

from experiments.benches.bench import Facts
from placer.errors import BadInputError, PlacerError, one_line

NAMES = ("overhead", "oracle", "recovery", "steady", "kills")


def part(name: str, settings: Facts) -> Facts:
    """What the part finds, in this process. Raises BadInputError for a part that is none."""
    from experiments.benches.online import kills, oracle, overhead, recovery, steady

    parts: dict[str, tuple[Callable[[Any], Facts], type[Any]]] = {
        "overhead": (overhead.part, overhead.OverheadSettings),
        "oracle": (oracle.part, oracle.OracleSettings),
        "recovery": (recovery.part, recovery.RecoverySettings),
        "steady": (steady.part, steady.SteadySettings),
        "kills": (kills.part, kills.KillSettings),
    }
    if name not in parts:
        raise BadInputError(f"there is no part {name!r}; choose one of {', '.join(NAMES)}.")
    run, made = parts[name]
    return run(made(**settings))


def main() -> None:
    """A failure is a fact, too."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    name, text = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "{}"
    with redirect_stdout(sys.stderr):
        try:
            facts = part(name, json.loads(text))
        except PlacerError as error:
            facts = {"failed": one_line(str(error))}
        except Exception as error:  # the other parts go on
            facts = {"failed": one_line(f"{type(error).__name__}: {error}")}
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
