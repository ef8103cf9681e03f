"""Compares the untouched step with a mapping now and then, because the steps of one do not show that a load on the
other has gone.

If a mapping runs and the untouched step is the favourite, a load may leave this process's cores while the mapping's
devices are others. If the untouched step was preferred to a mapping, a load may leave the mapping's devices.
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
    """Looks at the favourite, if that or the incumbent is the untouched step. Looks that bring nothing are further and
    further apart.
    """

    def __init__(self, trials: Trials, settings: OnlineSettings) -> None:
        self.trials, self.settings = trials, settings
        self._wait, self._due_step = FIRST, 0

    def is_due(self, step: int) -> bool:
        """Whether to look after call number `step`, if the favourite is another mode than the incumbent. Never in a dry
        run.
        """
        competes = UNTOUCHED in (self.trials.favourite, self.trials.mode)
        return competes and step >= self._due_step and not self.settings.dry_run

    def later(self, step: int) -> None:
        """Wait until the next look, because the incumbent changed or a look has ended."""
        self._due_step = step + self._wait

    def look(self) -> Steps[bool]:
        """Try the favourite, and go on with it if it is faster. Returns whether it is. Call `later` afterwards."""
        trials, mode, favourite = self.trials, self.trials.mode, self.trials.favourite
        assert favourite is not None
        yield from trials.try_out(favourite, self.settings.quick)
        if trials.mode is mode and trials.known_s(favourite) < trials.known_s(mode):
            yield from trials.race([mode, favourite], self.settings.quick)
        moved = trials.mode is not mode
        self._wait = FIRST if moved else min(2 * self._wait, MOST)
        return moved

    def try_instead(self, found: Diagnosis) -> Steps[bool]:
        """Try the untouched step if it competes and steps of the mapping that runs have clearly slowed. No other
        mapping would be faster, but the untouched step may run on other cores. Returns whether it runs now. Does
        nothing in a dry run.
        """
        trials, mode = self.trials, self.trials.mode
        has_slowed = isinstance(mode, Placed) and found.step_ratio > CLEAR
        if has_slowed and trials.untouched_competes and not self.settings.dry_run:
            yield from trials.try_out(UNTOUCHED, self.settings.quick)
        return trials.mode is not mode


def compare_untouched(trials: Trials, settings: OnlineSettings) -> Steps[None]:
    """If the untouched step competes, try it unless it was measured, and race the incumbent against modes that are
    nearly as fast.
    """
    if not trials.untouched_competes:
        return
    if trials.mode is not UNTOUCHED and UNTOUCHED not in trials.step_s:
        yield from trials.try_out(UNTOUCHED, settings.quick)
    yield from trials.race_near([*trials.built, UNTOUCHED], settings.quick)
