"""Matches users' regular expressions in a process whose CPU time is limited.

Python's `re` tries every way to match: '(a+)+$' takes months on a name of fifty letters. It cannot be interrupted from
another thread, a signal reaches the main thread only, and the text of an expression does not show whether it is safe.
A process can always be ended, and costs 30 ms. Run as a file, with the standard library only.
"""

from __future__ import annotations

import json
import math
import re
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

LIMIT_S = 5  # of CPU time, so that a busy machine changes nothing; a sensible expression takes milliseconds


class Found(NamedTuple):
    """What an expression matches. whole: the indices of the names that it matches as a whole. inside: the first of
    these, else the index of the first name in which it is found; None if it is found in no name.
    """

    whole: list[int]
    inside: int | None


def matches(patterns: Sequence[str], names: Sequence[str], limit_s: int = LIMIT_S) -> list[Found]:
    """What each expression matches; one that takes more than `limit_s` seconds, and those after it, are left out.

    patterns: regular expressions that compile.
    """
    command = [sys.executable, "-I", "-S", str(Path(__file__)), str(limit_s)]
    asked = json.dumps([patterns, names])
    done = subprocess.run(
        command, input=asked, stdout=subprocess.PIPE, text=True, check=False,
        start_new_session=True,  # Ctrl-C reaches only this process, which ends the child
    )  # fmt: skip
    if done.returncode > 0:
        raise RuntimeError(f"the process that matches names ended with code {done.returncode}")
    return [Found(*json.loads(line)) for line in done.stdout.splitlines()]


def found_in(patterns: Sequence[str], names: Sequence[str]) -> Iterator[Found]:
    """Do the work of `matches` in this process, without a limit."""
    for pattern in patterns:
        expression = re.compile(pattern)
        whole = [i for i, name in enumerate(names) if expression.fullmatch(name)]
        inside = whole[0] if whole else next((i for i, name in enumerate(names) if expression.search(name)), None)
        yield Found(whole, inside)


def main(limit_s: int) -> None:
    """Answer the request on stdin with a line for each expression. The kernel ends this process if an expression takes
    more than `limit_s` seconds of CPU time.
    """
    warnings.simplefilter("ignore")  # FutureWarning: syntax whose meaning may change
    asked = json.load(sys.stdin)
    _give(limit_s)
    for found in found_in(*asked):
        print(json.dumps(found), flush=True)
        _give(limit_s)


def _give(seconds: int) -> None:
    """Let this process compute for `seconds` from now on, or less if its hard limit is lower."""
    _, most_s = resource.getrlimit(resource.RLIMIT_CPU)
    until_s = math.ceil(time.process_time()) + seconds
    is_free = most_s == resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_CPU, (until_s if is_free else min(until_s, most_s), most_s))


if __name__ == "__main__":
    main(int(sys.argv[1]))
