"""Looks at the untouched step, where that is the favourite and another mode runs: that a load has left this process's
cores may go unnoticed where the incumbent's devices are others.
"""

from __future__ import annotations

from placer.train.steps.modes import UNTOUCHED
from search.online.interfaces import Steps
from search.online.settings import OnlineSettings
from search.online.trials.trials import Trials

FIRST = 500  # steps until the next look
MOST = 4 * FIRST


class UntouchedLooks:
    """Looks that bring nothing are further and further apart."""

    def __init__(self, trials: Trials, settings: OnlineSettings) -> None:
        self.trials, self.settings = trials, settings
        self._wait, self._due_step = FIRST, 0

    def is_due(self, step: int) -> bool:
        """Whether to look at this step."""
        return step >= self._due_step and self.trials.favourite is UNTOUCHED

    def later(self, step: int) -> None:
        """The incumbent changed, or was looked past: wait until the next look."""
        self._due_step = step + self._wait

    def look(self) -> Steps[bool]:
        """Look at it, and go on with it if it is faster; returns whether it is. Call `later` afterwards."""
        trials, mode = self.trials, self.trials.mode
        yield from trials.try_out(UNTOUCHED, self.settings.quick)
        if trials.mode is mode and trials.known_s(UNTOUCHED) < trials.known_s(mode):
            yield from trials.race([mode, UNTOUCHED], self.settings.quick)
        moved = trials.mode is not mode
        self._wait = FIRST if moved else min(2 * self._wait, MOST)
        return moved
