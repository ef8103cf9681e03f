"""Results as numbers that a model can learn from, failures among them."""

from __future__ import annotations

from collections.abc import Mapping

from placer.result import Measured, Result
from search.problem.problem import Placement

# A failed mapping counts as so many times the slowest one measured.
FAILED_FACTOR = 2.0


def results_s(told: Mapping[Placement, Result]) -> dict[Placement, float]:
    """Seconds for each placement told, failures included; nothing where nothing was measured yet."""
    measured = [result.step_s for result in told.values() if isinstance(result, Measured)]
    if not measured:
        return {}
    failed_s = FAILED_FACTOR * max(measured)
    return {p: result.step_s if isinstance(result, Measured) else failed_s for p, result in told.items()}
