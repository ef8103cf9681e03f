"""Finds what slowed by a few steps on each single device, because steps may show a load that probes do not see."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import median

from search.online.diagnose.diagnosis import Diagnosis, diagnose_by_steps
from search.online.interfaces import Steps
from search.online.trials.race import sample
from search.online.trials.trials import Trials

PROBE_STEPS = 2  # steps on each device


class SingleDevices:
    """Current steps on single devices, compared with those of the search."""

    def __init__(self, trials: Trials) -> None:
        self.trials = trials
        self._calm_s: dict[str, float] = {}  # seconds of a step on each device alone, as the search measured it

    def learn(self) -> None:
        """Keep what the search measured, before a change of load makes it invalid."""
        measured = [single for single in self.trials.singles if single in self.trials.step_s]
        self._calm_s = {self.trials.name_of(single): self.trials.step_s[single] for single in measured}

    def diagnose(self, names: Iterable[str], before: Mapping[str, float], step_ratio: float) -> Steps[Diagnosis]:
        """Return what slowed since a change was last acted on. names: of all devices. before: how many times slower
        than in the search devices were then. step_ratio: step time now divided by that then.
        """
        trials = self.trials
        factors = dict.fromkeys(names, math.nan)  # unknown if no mapping on that device alone is built
        for single in trials.singles:
            name = trials.name_of(single)
            if name in self._calm_s and trials.live.is_current(single):
                took = yield from sample(single, PROBE_STEPS)
                factors[name] = median(took) / self._calm_s[name] / before.get(name, 1.0)
        return diagnose_by_steps(factors, step_ratio)
