"""What measuring a mapping came to: a step time with its spread, or a failure. Both are values."""

from __future__ import annotations

from dataclasses import dataclass


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
