"""How a test's training waits for its search: steps that take no time give way to what they wait for."""

from __future__ import annotations

import time

MOST_STEPS = 100_000  # by far more than a search takes
BRISK = 5_000  # steps after which a training pauses between steps
PAUSE_S = 0.005


def give_way(steps: int) -> None:
    """Pause, if there are already more steps than a search takes on a calm machine. Called after each step of a search;
    steps: how many there were.

    The planner's process has a low priority, so that beside steps without a pause it hardly gets on if the machine is
    busy, and any number of steps may be over before it answers.
    """
    assert steps < MOST_STEPS, "the search does not end"
    if steps > BRISK:
        time.sleep(PAUSE_S)
