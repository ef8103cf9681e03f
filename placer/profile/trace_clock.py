"""Traced steps whose times can be believed: TensorFlow takes them by the wall clock, which is set now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

APART_S = 0.005  # by which the two clocks may be apart after a step; a clock that is merely slewed stays far below
MOST_TRIES = 3

T = TypeVar("T")


def evenly_timed(
    run: Callable[[], T], wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
) -> T:
    """What `run` returns, run again where the wall clock was set meanwhile, or the machine suspended; at most
    MOST_TRIES times. wall, steady: seconds.
    """
    for _ in range(MOST_TRIES):
        apart_s = wall() - steady()
        found = run()
        if abs(wall() - steady() - apart_s) < APART_S:
            break
    return found
