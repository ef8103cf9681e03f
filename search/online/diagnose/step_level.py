"""How step times have changed since a mapping was last found for them."""

from __future__ import annotations

import math
from collections.abc import Collection
from statistics import median

SETTLED = 16  # steps whose median is a level
NOW = 5  # latest steps, whose median is the current step time
SAME = 1.05  # a change of step times that may be noise
CLEAR = 1.15  # a change of step times that is more than noise


def is_clear(step_ratio: float) -> bool:
    """Whether step times changed by more than noise."""
    return not 1 / CLEAR < step_ratio < CLEAR


class StepLevel:
    """Compounds the changes of step times since a mapping was last found for them.

    latest_s: in all methods, seconds of the incumbent's latest steps, the oldest first.
    """

    def __init__(self) -> None:
        self._solved_s = math.nan  # seconds of a step since `solved`; NaN until enough steps were taken
        self._count = 0  # steps since `solved` or `forget`
        self._new = 1.0  # ratio of step times since the last look
        self._old = 1.0  # the same, for the clear changes before the last look about which nothing was done

    @property
    def unsolved(self) -> float:
        """How many times as long steps take because of clear changes that were looked at and about which nothing was
        done; 1.0 if there are none.
        """
        return self._old

    @property
    def is_unsolved(self) -> bool:
        """Whether steps have clearly changed, and nothing was done about it."""
        return is_clear(self._old)

    def changed(self, ratio: float) -> None:
        """Note that steps take `ratio` times as long as before."""
        self._new *= ratio

    def looked_at(self) -> float:
        """Begin a look. Returns how many times as long steps take now as when a mapping was last found: by all clear
        changes together, or if these are not clear, by the changes since the last look.
        """
        new, self._new = self._new, 1.0
        self._old *= new if is_clear(new) else 1.0
        return self._old if self.is_unsolved else new

    def solved(self) -> None:
        """Start again, because a mapping was found for the current load."""
        self._old = self._new = 1.0
        self.forget()

    def forget(self) -> None:
        """Learn the level again, because earlier step times cannot be compared with later ones."""
        self._solved_s, self._count = math.nan, 0

    def settle(self, latest_s: Collection[float]) -> None:
        """Called after each step: learn the level once enough steps were taken, if nothing has changed."""
        self._count += 1
        is_due = math.isnan(self._solved_s) and self._count >= SETTLED and len(latest_s) >= SETTLED
        if is_due and self._new == 1.0 and not self.is_unsolved:
            self._solved_s = _latest_s(latest_s, SETTLED)

    def ratio_now(self, latest_s: Collection[float]) -> float:
        """Return the current step time divided by the level; 1.0 if either is unknown."""
        if math.isnan(self._solved_s) or len(latest_s) < NOW:
            return 1.0
        return _latest_s(latest_s, NOW) / self._solved_s

    def has_passed(self, latest_s: Collection[float]) -> bool:
        """Whether a change about which nothing was done has gone again by itself, and no change was noticed since."""
        if self._new != 1.0 or not self.is_unsolved or math.isnan(self._solved_s) or len(latest_s) < SETTLED:
            return False
        return not is_clear(_latest_s(latest_s, SETTLED) / self._solved_s)

    def passed(self) -> None:
        """Drop a change that `has_passed`."""
        self._old = 1.0


def _latest_s(latest_s: Collection[float], count: int) -> float:
    return median(list(latest_s)[-count:])
