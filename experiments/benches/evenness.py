"""How evenly this machine computes while Placer runs nothing: how much its neighbours disturb it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from statistics import median

from placer.result import quartiles

LOOK_S = 5.0
PIECE = 200_000  # subtractions, about 10 ms: as long as an op that is placed, and longer than a time slice
UNEVEN = 0.15  # above this share, a bench measures too few steps to see differences of some percent
LOOK = "from experiments.benches.evenness import scatter; print(scatter({seconds}))"


def unevenness(seconds: float = LOOK_S) -> float | None:
    """The interquartile range of the times of equal work, divided by their median: the median over all cores that this
    process may use, which work at the same time for `seconds`. None if one of the processes that work fails.
    """
    command = [sys.executable, "-c", LOOK.format(seconds=seconds)]
    looks = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in os.sched_getaffinity(0)]
    told = [look.communicate()[0] for look in looks]
    if any(look.returncode for look in looks):
        return None
    return median(map(float, told))


def warn_if_uneven(share: float | None) -> None:
    """Warn if current measurements would say little about small differences."""
    if share is not None and share > UNEVEN:
        warnings.warn(
            f"this machine computes unevenly just now: equal work takes times that scatter by {share:.0%} "
            "(interquartile range); what is measured may be off by as much, so wait, or use another machine",
            stacklevel=2,
        )


def pace_line(before: float | None, after: float | None) -> str:
    """A sentence for the page; empty if nothing is known."""
    known = [(share, when) for share, when in ((before, "before"), (after, "after")) if share is not None]
    if not known:
        return ""
    told = " and ".join(f"{share:.0%} {when} the bench" for share, when in known)
    beside = "; **what was measured may be off by as much**" if max(known)[0] > UNEVEN else ""
    return f"Times of equal work, on all cores at once, scattered by {told} (interquartile range){beside}."


def scatter(seconds: float) -> float:
    """The interquartile range of the times that one core takes for equal pieces of work, divided by their median."""
    times_s: list[float] = []
    end_s = time.perf_counter() + seconds
    while len(times_s) < 4 or time.perf_counter() < end_s:
        begin_s, left = time.perf_counter(), PIECE
        while left:
            left -= 1
        times_s.append(time.perf_counter() - begin_s)
    low, middle, high = quartiles(times_s)
    return (high - low) / middle
