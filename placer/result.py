"""What measuring a mapping came to: a step time with its spread, or a failure. Both are values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Measured:
    """step_s: median seconds of one training step; spread_s: interquartile range over `repeats` steps.

    switch_s: seconds from the mapping to the end of its first step, fresh variables included.
    """

    step_s: float
    spread_s: float = 0.0
    repeats: int = 1
    switch_s: float = 0.0
    stopped_early: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """The mapping gave no step time. reason: one word for machines (memory, loss, placement, device, error)."""

    reason: str
    detail: str = ""


Result = Measured | Failed


def summary(seconds: Sequence[float]) -> Measured:
    """Median and interquartile range of step times."""
    low, middle, high = np.percentile(seconds, [25, 50, 75])
    return Measured(float(middle), float(high - low), len(seconds))


def heats(entries: int, repeats: int) -> list[int]:
    """After how many steps each half drops out: 4 entries, 12 repeats: all take 3, two 6, one 12."""
    halvings = max(entries - 1, 0).bit_length()
    return sorted({-(-repeats // 2**h) for h in range(halvings + 1)})
