"""The result of measuring a mapping: a step time with its spread, or a failure. Both are values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

Reason = Literal["memory", "loss", "placement", "device", "link", "case", "error"]
"""memory: a device has too little; loss: another loss than the untouched step's; placement: ops ran elsewhere; device:
one is absent or lost; link: a tensor would cross one that is missing; case: the campaign's case cannot be opened.
"""

MEDIAN_SIGMAS = 1.2533  # standard deviation of a median of n normal values, relative to theirs / sqrt(n): sqrt(pi / 2)
QUARTILE_SIGMAS = 1.349  # interquartile range of normal values, relative to their standard deviation
SURE = 2.0  # standard errors of the difference by which a mapping must beat the fastest single device


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured step time."""

    step_s: float  # median seconds of one training step; in a race scaled to the anchor's step time
    spread_s: float = 0.0  # interquartile range over `repeats` steps
    repeats: int = 1
    switch_s: float = 0.0  # seconds from choosing the mapping to the end of its first step, fresh variables included
    stopped_early: bool = False

    def scaled(self, factor: float) -> Measured:
        """The same with the step time and its spread multiplied by `factor`; `switch_s` stays."""
        return replace(self, step_s=self.step_s * factor, spread_s=self.spread_s * factor)


@dataclass(frozen=True, slots=True)
class Failed:
    """The mapping gave no step time."""

    reason: Reason  # for programs
    detail: str = ""
    device: str = ""  # the device that ran out of memory; "" if none did, or it is unknown
    wanted_bytes: float = 0.0  # what that device would have held at once, as simulated


Result = Measured | Failed


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """The values below which lie a quarter, a half and three quarters of `values`, interpolated linearly."""
    low, middle, high = np.percentile(values, [25, 50, 75]).tolist()
    return low, middle, high


def summary(seconds: Sequence[float]) -> Measured:
    """Median and interquartile range of step times."""
    low, middle, high = quartiles(seconds)
    return Measured(middle, high - low, len(seconds))


def fastest_s(results: Iterable[Result]) -> float:
    """Seconds of the fastest result that took all its steps; infinity if there is none. A mapping that was stopped
    early was slower than the incumbent beside it, however few seconds its few steps happened to take.
    """
    return min((r.step_s for r in results if isinstance(r, Measured) and not r.stopped_early), default=math.inf)


def is_clearly_slower(seconds: Sequence[float], fastest: Sequence[float]) -> bool:
    """Whether three quarters of the steps took longer than three quarters of the fastest's."""
    return bool(np.percentile(seconds, 25) > np.percentile(fastest, 75))


def median_error(spread: float, repeats: int) -> float:
    """Standard error of the median of `repeats` values with the interquartile range `spread`, in their unit, for normal
    noise (McGill, Tukey & Larsen 1978, "Variations of Box Plots"); unreliable below four repeats.
    """
    return MEDIAN_SIGMAS * spread / (QUARTILE_SIGMAS * math.sqrt(repeats))


def standard_error(found: Measured) -> float:
    """The `median_error` of the step time, as a share of it."""
    return median_error(found.spread_s, found.repeats) / found.step_s


def is_faster(one: Measured, other: Measured, least_gain: float, sigmas: float = 1.0) -> bool:
    """Whether `one` is faster by more than `least_gain`, a share of the other's step time, and by more than `sigmas`
    standard errors of the difference; these count as at most half of the other's step time.
    """
    noise = sigmas * _error_of_difference(one, other)
    return 1 - one.step_s / other.step_s > max(least_gain, min(noise, 0.5))


def surely_beats(one: Measured, other: Measured) -> bool:
    """Whether `one` is faster by more than SURE standard errors of the difference, and so is handed back instead of
    `other`, which runs on a single device.
    """
    return is_faster(one, other, 0.0, SURE)


def _error_of_difference(one: Measured, other: Measured) -> float:
    """Standard error of the difference of two step times that are about the same, as a share of them; infinite if one
    has fewer than two repeats.
    """
    few = min(one.repeats, other.repeats) < 2
    return math.inf if few else math.hypot(standard_error(one), standard_error(other))


def relative_error(seconds: Sequence[float]) -> float:
    """Standard error of the median of step times, as a share of it; infinite for fewer than four."""
    if len(seconds) < 4:
        return float("inf")
    return standard_error(summary(seconds))


def heats(entries: int, repeats: int) -> list[int]:
    """Successive halving: the numbers of steps after which the slower half drops out. heats(4, 12) = [3, 6, 12]."""
    halvings = max(entries - 1, 0).bit_length()
    return sorted({-(-repeats // 2**h) for h in range(halvings + 1)})
