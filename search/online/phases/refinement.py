"""Refinement: a load that stays is worth a better mapping than was found in haste, or while it grew. The planner looks
for one while steps go on; a few of them try it.
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
SHARE = 0.1  # of the training's time that looks may cost


class Asked(NamedTuple):
    """What the planner was asked under the incumbent of then: what it predicts of that, and what it proposes."""

    mode: Placed
    predicted_s: Answer[float]
    proposals: Answer[list[Proposal]]


class Refinement:
    """Says when to ask for a better mapping, and looks at it; less and less often where that brings nothing."""

    def __init__(self, trials: Trials, planner: Planners, settings: OnlineSettings, step: Callable[[], int]) -> None:
        """step: how many calls there were."""
        self.trials, self.planner, self.settings, self._step = trials, planner, settings, step
        self._asked: Asked | None = None
        self._backoff, self._due_step = Backoff(WAITS), 0

    @property
    def is_answered(self) -> bool:
        """Whether what was asked for is there to be looked at."""
        return self._asked is not None and self._asked.proposals.done()

    @property
    def is_due(self) -> bool:
        """Whether to ask, if there is a load."""
        return self._asked is None and self._step() >= self._due_step

    def begin_anew(self, cost_s: float) -> None:
        """The load has changed, and finding a mapping for it cost so many seconds."""
        self._asked, self._backoff = None, Backoff(WAITS)
        self._later(cost_s)

    def drop(self) -> None:
        """Forget what was asked: the load has changed."""
        self._asked = None

    def ask(self, load: Slowdown, mode: Placed) -> None:
        """Ask for mappings under this load, told what a step of the incumbent takes under it."""
        self.planner.slowed(load.devices, load.links)
        self.planner.tell(mode.plan, [(mode.devices, Measured(self.trials.known_s(mode)))])
        predicted_s = self.planner.predict(mode.plan, mode.devices)
        self._asked = Asked(mode, predicted_s, self.planner.propose(self.settings.replan, self.settings.replan_s))

    def look(self) -> Steps[None]:
        """Look at the best of what was proposed, if it is predicted to be better than the incumbent. Raises PlacerError
        if the planner is gone.
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
        """After twice as many steps as the last time, and so many that looks like this one cost SHARE of the time."""
        self._backoff = self._backoff.missed(self._step())
        paid = math.ceil(cost_s / (SHARE * self.trials.known_s(self.trials.mode)))
        self._due_step = max(self._backoff.ready_step, self._step() + paid)
