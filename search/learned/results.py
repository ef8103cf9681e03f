"""Results, including failures, as numbers that a model can learn from."""

from __future__ import annotations

from collections.abc import Mapping

from placer.result import Measured, Result
from search.problem.problem import Placement

# A failed mapping counts as this many times the slowest measured one.
FAILED_FACTOR = 2.0


def results_s(told: Mapping[Placement, Result]) -> dict[Placement, float]:
    """Return the seconds of each placement told, including failures; empty if no measurement has succeeded yet."""
    measured = [result.step_s for result in told.values() if isinstance(result, Measured)]
    if not measured:
        return {}
    failed_s = FAILED_FACTOR * max(measured)
    return {p: result.step_s if isinstance(result, Measured) else failed_s for p, result in told.items()}
