"""Races between modes of a step: every step of a race is a real step of the training.

sample: w . . .          w: not counted, because variables and caches move first
race:   A w....  B w....  C w....  A w....  C w....        B was clearly slower
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from placer.result import Measured, is_faster, summary
from placer.train.steps.modes import Mode
from search.online.interfaces import Steps

SIGMAS = 2.0
CLEARLY = 0.06  # share of a step; the noise of few steps may hide which mode is faster by less


def sample(mode: Mode, repeats: int, hopeless_s: float = math.inf) -> Steps[list[float]]:
    """Return the seconds of `repeats` steps in `mode`. Stops after two steps in a row that take longer than
    `hopeless_s`, because a single one may be a straggler.
    """
    yield mode
    took: list[float] = []
    while len(took) < repeats and (len(took) < 2 or min(took[-2:]) <= hopeless_s):
        took.append((yield mode))
    return took


def measured(steps_s: Sequence[float], *wanted: int) -> Measured:
    """Return the result of these steps. It is marked as stopped early unless their number is one of `wanted`."""
    return replace(summary(steps_s), stopped_early=len(steps_s) not in wanted)


def race(modes: Sequence[Mode], repeats: int, hopeless: float = math.inf) -> Steps[dict[Mode, list[float]]]:
    """Return the seconds of `repeats` steps of each mode. Two turns keep a drift of the machine from favouring a mode.

    After the first turn, modes that are clearly slower than the fastest drop out. If only one is left, there is no
    second turn. hopeless: two steps in a row that take this many times as long as one of modes[0] end a turn.
    """
    took: dict[Mode, list[float]] = {mode: [] for mode in modes}
    first = first_turn(repeats)
    for mode in modes:
        took[mode] += yield from sample(mode, first, _hopeless_s(took[modes[0]], hopeless))
    near = _near(took)
    if len(near) > 1 and repeats > first:
        for mode in near:
            took[mode] += yield from sample(mode, repeats - first, _hopeless_s(took[modes[0]], hopeless))
    return took


def first_turn(repeats: int) -> int:
    """Return how many of a mode's `repeats` steps the first of the two turns counts."""
    return -(-repeats // 2)


def _hopeless_s(beside_s: Sequence[float], hopeless: float) -> float:
    return hopeless * median(beside_s) if beside_s else math.inf


def _near(took: Mapping[Mode, Sequence[float]]) -> list[Mode]:
    """Return the modes that are not clearly slower than the fastest."""
    results = {mode: summary(steps_s) for mode, steps_s in took.items()}
    best = min(results.values(), key=lambda result: result.step_s)
    return [mode for mode, result in results.items() if not is_faster(best, result, CLEARLY, SIGMAS)]
