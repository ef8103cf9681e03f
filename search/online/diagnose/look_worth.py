"""Weighs what a look at other mappings may gain under a load against what it costs."""

from __future__ import annotations

import math

from search.online.diagnose.diagnosis import Diagnosis
from search.online.diagnose.step_level import SAME

LIKELY = 0.5  # likely share of the most that a mapping may gain, because work that is moved slows other devices
TRIALS = 2  # trials in a look, about


class LookCost:
    """Learns what looks cost the training, as seconds that steps took longer, and says whether another look may pay."""

    def __init__(self, trial_s: float) -> None:
        """trial_s: what a trial cost in the search, in seconds."""
        self._usual_s = self._cost_s = TRIALS * trial_s

    def took(self, lost_s: float) -> None:
        """Learn from a look that cost `lost_s` seconds; the latest looks count most."""
        self._cost_s = (self._cost_s + lost_s) / 2

    def refused(self) -> None:
        """Expect the next look to cost less, because one was not taken: an expensive look, perhaps for another reason,
        must not forbid all later looks.
        """
        self._cost_s = min(self._cost_s, (self._cost_s + self._usual_s) / 2)

    def may_pay(self, found: Diagnosis, step_s: float, horizon: int) -> bool:
        """Whether `horizon` steps, of `step_s` seconds each, may gain more than a look costs."""
        return LIKELY * most_gain(found) * step_s * horizon > self._cost_s


def most_gain(found: Diagnosis) -> float:
    """Return the most that any mapping is likely to gain, as a share of a step.

    No mapping makes steps shorter than they were before they slowed. No mapping gains more than the factor of the
    device that slowed, which it would gain by not using that device. But short probes understate a load: if steps
    slowed by more than the device, the geometric mean of both factors is taken. Steps that did not change say nothing.

        step before  |==========|
        step now     |==============|     ratio 1.4: another mapping gains 1 - 1/1.4 = 29 % at most
    """
    factors = [max(factor, 1 / factor) for factor in (*found.devices.values(), *found.links.values())]
    most = max(factors, default=1.0)
    if found.step_ratio > SAME:
        most = min(found.step_ratio, math.sqrt(most * found.step_ratio))
    return 1 - 1 / most
