"""Whether this machine was suspended: one clock of the kernel stands still meanwhile, and another one does not."""

from __future__ import annotations

import time
from collections.abc import Callable

LEAST_S = 0.05  # shorter than any suspend, longer than what clocks may be apart
MINUTE_S, HOUR_S = 60.0, 3600.0


def since_boot() -> float:
    """Seconds since this machine was started, those included in which it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Suspends:
    """Notices each suspend of this machine at the next look."""

    def __init__(
        self, awake: Callable[[], float] = time.monotonic, since_boot: Callable[[], float] = since_boot
    ) -> None:
        """awake: seconds, without those of suspends."""
        self._awake, self._since_boot = awake, since_boot
        self._apart_s = self._most()

    def passed_s(self) -> float:
        """Seconds for which the machine was suspended since the last look; 0.0 where it was not. Takes about half a
        microsecond.

        A thread may be held up between its looks at two clocks. The order in which they are read sees to it that no
        more is found than what was suspended: in the end the one that counts all first, at the start last.
        """
        passed_s = self._since_boot() - self._awake() - self._apart_s
        if passed_s < LEAST_S:
            return 0.0
        self._apart_s = self._most()
        return passed_s

    def _most(self) -> float:
        """How far the clocks are apart, and maybe what a thread was held up between them."""
        awake_s = self._awake()
        return self._since_boot() - awake_s


def in_words(asleep_s: float) -> str:
    """A suspend, as it is reported."""
    return f"this machine was suspended for {duration(asleep_s)}; the step that it fell into is not counted."


def duration(seconds: float) -> str:
    """Seconds in words, for people."""
    if seconds < MINUTE_S:
        return f"{seconds:.1f} s"
    return f"{seconds / MINUTE_S:.0f} min" if seconds < HOUR_S else f"{seconds / HOUR_S:.1f} h"
