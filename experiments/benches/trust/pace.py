"""A loop wrapped with default settings against the same loop alone: two processes that take blocks of steps in turn."""

from __future__ import annotations

import time

from experiments.benches.bench import Facts
from experiments.benches.paired_trainings import PAIRS_S, Side, blocks_in_turn, compared, is_settled
from placer.errors import PlacerError

SEARCH, PAUSE_S = 10, 0.1  # steps at a time while the search goes on, and the pause after them
SEARCH_S = 180.0  # limit
PROGRAM = "experiments.benches.trust.paced"


def pace_facts(loop: str, workers: int, budget: int, seconds: float = PAIRS_S) -> Facts:
    """How long a step of the loop takes, wrapped and alone, once the search has ended.

    ratio: the median over pairs of blocks of the ratio of their medians; spread: its interquartile range.
    """
    options = {"devices": f"workers:{workers}", "budget": budget}
    with Side(PROGRAM, loop, options) as wrapped, Side(PROGRAM, loop, None) as alone:
        for side in (wrapped, alone):
            side.wait()
        begin, searched = time.perf_counter(), 0
        while not is_settled(wrapped.state):
            searched += len(wrapped.block(SEARCH))
            time.sleep(PAUSE_S)
            if time.perf_counter() - begin > SEARCH_S:
                raise PlacerError(f"the search did not end within {SEARCH_S:.0f} s: {wrapped.state}")
        pairs, steps = blocks_in_turn(wrapped, alone, seconds)
        return {
            **compared(pairs, "wrapped_s", "alone_s"), "steps": steps, "searched": searched, "ended": wrapped.state,
        }  # fmt: skip
