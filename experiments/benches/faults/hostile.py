"""Hostile files, stores and command lines (`experiments.fuzz`), each kind in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

from experiments.benches.bench import Facts, say

INPUTS = 50_000  # in all; each kind gets its share
LIMIT_S = 1200.0
PROGRAM = ("-m", "experiments.fuzz")


def hostile_facts(inputs: int, over: Callable[[], bool] = lambda: False) -> Facts:
    """The results of `inputs` hostile inputs, by kind. A kind whose process failed counts as one mishandled input.

    over: whether to begin no other kind.
    """
    shares = json.loads(_run().stdout)
    found = {}
    for name, share in shares.items():
        if over():
            break
        found[name] = _of(name, max(1, int(inputs * share)))
        say(f"hostile, {name}: {found[name]['mishandled']} of {found[name]['inputs']} mishandled")
    return found


def _of(name: str, count: int) -> Facts:
    try:
        done = _run(name, str(count))
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (ValueError, IndexError):
        why = f"the process ended with {done.returncode}: {done.stderr[-500:]}"
    except subprocess.TimeoutExpired:
        why = f"{count} inputs took longer than {LIMIT_S:.0f} s"
    return {"inputs": count, "refused": 0, "mishandled": 1, "lines": [why], "seconds": 0.0}


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the fuzzer. Without arguments it prints the share of each kind."""
    return subprocess.run(
        [sys.executable, *PROGRAM, *arguments], capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
