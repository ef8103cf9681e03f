"""What a look at other mappings may gain under a load, and what it costs."""

from __future__ import annotations

from search.online.diagnose.diagnosis import Diagnosis

LIKELY = 0.5  # of the most that a mapping may gain, since the work that is moved slows other devices
TRIALS = 2  # of a look, about
SAME = 1.05  # a change of step times that may be noise


class LookCost:
    """Learns what looks cost the training, in seconds of steps that took longer, and says whether one more may pay."""

    def __init__(self, trial_s: float) -> None:
        """trial_s: what a trial cost in the search."""
        self._cost_s = TRIALS * trial_s

    def took(self, lost_s: float) -> None:
        """A look cost so much; the latest ones count most."""
        self._cost_s = (self._cost_s + lost_s) / 2

    def may_pay(self, found: Diagnosis, step_ratio: float, step_s: float, horizon: int) -> bool:
        """Whether the steps within the horizon, of `step_s` seconds each, may gain more than a look costs."""
        return LIKELY * most_gain(found, step_ratio) * step_s * horizon > self._cost_s


def most_gain(found: Diagnosis, step_ratio: float) -> float:
    """The most that any mapping may gain, as a share of a step: were a device that became slower not used at all, steps
    would take as long as before, and no more than the device's factor is to be had from one that became faster. Where
    steps take `step_ratio` times as long, beyond noise, they bound it, too.

        step before  |==========|
        step now     |==============|     ratio 1.4: another mapping gains 1 - 1/1.4 = 29 % at most
    """
    factors = [max(factor, 1 / factor) for factor in (*found.devices.values(), *found.links.values())]
    most = max(factors, default=1.0)
    if step_ratio > SAME:
        most = min(most, step_ratio)
    return 1 - 1 / most
