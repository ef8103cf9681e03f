"""Refinement: a load that stays is worth a better mapping than the one found in haste, or while the load grew. The
planner looks for a better mapping while steps go on, and a few steps try it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from placer.devices.load.load_reading import Slowdown
from placer.result import Measured
from placer.train.steps.modes import Placed
from search.online.diagnose.diagnosis import Backoff, BackoffSettings
from search.online.interfaces import Answer, Steps
from search.online.planners import Planners
from search.online.replan.proposal import LEAST_PREDICTED, Proposal, below
from search.online.settings import OnlineSettings
from search.online.trials.trials import Trials

WAITS = BackoffSettings(first=60, most=2000)
SHARE = 0.1  # share of the training's time that looks may cost


class Asked(NamedTuple):
    """A question to the planner: the incumbent at that time, its predicted seconds of a step, and the proposals."""

    mode: Placed
    predicted_s: Answer[float]
    proposals: Answer[list[Proposal]]


class Refinement:
    """Says when to ask for a better mapping, and tries it; less and less often while that brings nothing."""

    def __init__(self, trials: Trials, planner: Planners, settings: OnlineSettings, step: Callable[[], int]) -> None:
        """step: returns the number of calls so far."""
        self.trials, self.planner, self.settings, self._step = trials, planner, settings, step
        self._asked: Asked | None = None
        self._backoff, self._due_step = Backoff(WAITS), 0

    @property
    def is_answered(self) -> bool:
        """Whether the proposals that were asked for have arrived."""
        return self._asked is not None and self._asked.proposals.done()

    @property
    def is_due(self) -> bool:
        """Whether it is time to ask, if there is a load."""
        return self._asked is None and self._step() >= self._due_step

    def begin_anew(self, cost_s: float) -> None:
        """Start again, because the load has changed. cost_s: seconds that finding a mapping for it cost."""
        self._asked, self._backoff = None, Backoff(WAITS)
        self._later(cost_s)

    def drop(self) -> None:
        """Forget what was asked, because the load has changed."""
        self._asked = None

    def ask(self, load: Slowdown, mode: Placed) -> None:
        """Ask for mappings under `load`, and tell the planner the step time of the incumbent `mode` under it."""
        self.planner.slowed(load.devices, load.links)
        self.planner.tell(mode.plan, [(mode.op_devices, Measured(self.trials.known_s(mode)))])
        predicted_s = self.planner.predict(mode.plan, mode.op_devices)
        self._asked = Asked(mode, predicted_s, self.planner.propose(self.settings.replan, self.settings.replan_s))

    def look(self) -> Steps[None]:
        """Try the best proposal, if it is predicted to be better than the incumbent. Raises PlacerError if the planner
        has ended.
        """
        asked, self._asked = self._asked, None
        trials, lost_s = self.trials, self.trials.lost_s
        if asked is None or trials.mode is not asked.mode:
            return
        bar_s = (1 - LEAST_PREDICTED) * min(trials.known_s(asked.mode), asked.predicted_s.result())
        yield from trials.enter(below(bar_s, asked.proposals.result())[:1], self.settings.quick)
        if trials.mode is not asked.mode:
            self._backoff = Backoff(WAITS)
        self._later(trials.lost_s - lost_s)

    def _later(self, cost_s: float) -> None:
        """Wait twice as many steps as the last time, and longer if looks of `cost_s` seconds would otherwise take more
        than SHARE of the time.
        """
        self._backoff = self._backoff.missed(self._step())
        paid = math.ceil(cost_s / (SHARE * self.trials.known_s(self.trials.mode)))
        self._due_step = max(self._backoff.ready_step, self._step() + paid)
