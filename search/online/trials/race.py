"""Racing ways to run a step: every step of a race is a real one of the training.

look:   w . . .          w: not counted, for variables and caches come
race:   A w....  B w....  C w....  A w....  C w....        B was clearly slower
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from placer.result import Measured, summary
from placer.train.modes import Way
from search.online.diagnose.diagnosis import relative_spread
from search.online.interfaces import Steps

SIGMAS = 2.0
CLEARLY = 0.06  # slower than the fastest, and the noise of few steps may still hide who is


def look(way: Way, repeats: int, hopeless_s: float = math.inf) -> Steps[list[float]]:
    """Seconds of so many steps of `way`; the first that takes longer than `hopeless_s` is the last."""
    yield way
    took: list[float] = []
    while len(took) < repeats and max(took, default=0.0) <= hopeless_s:
        took.append((yield way))
    return took


def race(ways: Sequence[Way], repeats: int, hopeless: float = math.inf) -> Steps[dict[Way, list[float]]]:
    """Seconds of `repeats` steps of each, in two turns, so that a machine that drifts wrongs nobody.

    After the first turn those drop out that are clearly slower than the fastest; alone, it needs no second one.
    hopeless: a step so many times as long as ways[0]'s ends a turn.
    """
    took: dict[Way, list[float]] = {way: [] for way in ways}
    first = -(-repeats // 2)
    for way in ways:
        took[way] += yield from look(way, first, _hopeless_s(took[ways[0]], hopeless))
    near = _near(took)
    if len(near) > 1 and repeats > first:
        for way in near:
            took[way] += yield from look(way, repeats - first, _hopeless_s(took[ways[0]], hopeless))
    return took


def is_faster(one: Measured, other: Measured, least_gain: float, sigmas: float = 1.0) -> bool:
    """By more than `least_gain` of the other's step, and than so many standard deviations of the difference."""
    noise = sigmas * math.sqrt(2) * relative_spread(one, other)
    return 1 - one.step_s / other.step_s > max(least_gain, min(noise, 0.5))


def _hopeless_s(beside_s: Sequence[float], hopeless: float) -> float:
    return hopeless * median(beside_s) if beside_s else math.inf


def _near(took: Mapping[Way, Sequence[float]]) -> list[Way]:
    """Those that are as fast as the fastest, as far as can be told."""
    results = {way: summary(steps_s) for way, steps_s in took.items()}
    best = min(results.values(), key=lambda result: result.step_s)
    return [way for way, result in results.items() if not is_faster(best, result, CLEARLY, SIGMAS)]
