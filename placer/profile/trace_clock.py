"""Repeats traced steps whose times are wrong: TensorFlow takes times by the wall clock, which is set now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

APART_S = 0.005  # by which the two clocks may move apart in a step; a clock that is only slewed stays far below
MOST_TRIES = 3

T = TypeVar("T")


def evenly_timed(
    run: Callable[[], T], wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
) -> T:
    """Return what `run` returns. It runs again if the wall clock was set meanwhile or the machine was suspended; at
    most MOST_TRIES times in all. wall, steady: clocks, seconds.
    """
    for _ in range(MOST_TRIES):
        least_s, most_s = _apart_s(wall, steady)
        found = run()
        least_now_s, most_now_s = _apart_s(wall, steady)
        if max(least_now_s - most_s, least_s - most_now_s) < APART_S:
            break
    return found


def _apart_s(wall: Callable[[], float], steady: Callable[[], float]) -> tuple[float, float]:
    """The least and the most that the clocks may be apart, in seconds: this thread may be held up between two looks."""
    before_s = steady()
    wall_s = wall()
    return wall_s - steady(), wall_s - before_s
