"""Looks at the untouched step, where that is the favourite and another mode runs: that a load has left this process's
cores may go unnoticed where the incumbent's devices are others. Likewise at a mapping to which the untouched step was
preferred, because the steps of this process do not show that a load has left its devices.
"""

from __future__ import annotations

from placer.train.steps.modes import UNTOUCHED, Placed
from search.online.diagnose.diagnosis import Diagnosis
from search.online.diagnose.step_level import CLEAR
from search.online.interfaces import Steps
from search.online.settings import OnlineSettings
from search.online.trials.trials import Trials

FIRST = 500  # steps until the next look
MOST = 4 * FIRST


class UntouchedLooks:
    """Looks at the untouched step, which are further and further apart while they bring nothing."""

    def __init__(self, trials: Trials, settings: OnlineSettings) -> None:
        self.trials, self.settings = trials, settings
        self._wait, self._due_step = FIRST, 0

    def is_due(self, step: int) -> bool:
        """Whether to look at this step, if the favourite is another mode than the incumbent."""
        return step >= self._due_step and (self.trials.favourite is UNTOUCHED or self.trials.mode is UNTOUCHED)

    def later(self, step: int) -> None:
        """Wait until the next look, because the incumbent changed or a look has ended."""
        self._due_step = step + self._wait

    def look(self) -> Steps[bool]:
        """Look at the favourite, and go on with it if it is faster; returns whether it is. Call `later` afterwards."""
        trials, mode, favourite = self.trials, self.trials.mode, self.trials.favourite
        assert favourite is not None
        yield from trials.try_out(favourite, self.settings.quick)
        if trials.mode is mode and trials.known_s(favourite) < trials.known_s(mode):
            yield from trials.race([mode, favourite], self.settings.quick)
        moved = trials.mode is not mode
        self._wait = FIRST if moved else min(2 * self._wait, MOST)
        return moved

    def try_instead(self, found: Diagnosis) -> Steps[bool]:
        """Try it out where it competes and steps of a mapping have clearly slowed, though no other mapping would be
        faster: it may run on other cores. Returns whether it runs now.
        """
        trials, mode = self.trials, self.trials.mode
        has_slowed = isinstance(mode, Placed) and found.step_ratio > CLEAR
        if has_slowed and trials.untouched_competes and not self.settings.dry_run:
            yield from trials.try_out(UNTOUCHED, self.settings.quick)
        return trials.mode is not mode


def compare_untouched(trials: Trials, settings: OnlineSettings) -> Steps[None]:
    """Try it out where it competes and was not measured, and race the incumbent against what is nearly as fast."""
    if not trials.untouched_competes:
        return
    if trials.mode is not UNTOUCHED and UNTOUCHED not in trials.step_s:
        yield from trials.try_out(UNTOUCHED, settings.quick)
    yield from trials.race_near([*trials.built, UNTOUCHED], settings.quick)
