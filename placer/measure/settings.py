"""How long mappings are measured, and when a candidate is stopped early."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_TURNS = 5  # of steps side by side, however little time there is: of fewer, little can be said


@dataclass(frozen=True)
class RunnerSettings:
    """Settings for measuring a mapping."""

    warm_up: int = 2  # steps dropped after those whose results are checked
    repeats: int = 12  # steps that count
    give_up_after: int = 4  # steps after which a candidate is stopped if its best is slower than the incumbent's worst
    hopeless: float = 3.0  # a candidate is stopped after a step of more than this many times the incumbent's median
    # A candidate is stopped if its first warm-up step takes more than this factor x the incumbent's step; None = never.
    drop_at_once: float | None = None
    drop_from_s: float = 0.2  # a faster first step never stops it, because the first steps on a GPU include set-up
