"""Tells whether this machine was suspended: during a suspend one clock of the kernel stops, and another one goes on."""

from __future__ import annotations

import time
from collections.abc import Callable

LEAST_S = 0.05  # shorter than any suspend, longer than the clocks drift apart otherwise
MINUTE_S, HOUR_S = 60.0, 3600.0


def since_boot() -> float:
    """Seconds since this machine was started, including suspends."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Suspends:
    """Notices each suspend of this machine at the next call of `passed_s`."""

    def __init__(
        self, awake: Callable[[], float] = time.monotonic, since_boot: Callable[[], float] = since_boot
    ) -> None:
        """awake, since_boot: clocks that return seconds, without and with those of suspends."""
        self._awake, self._since_boot = awake, since_boot
        self._apart_s = self._most()

    def passed_s(self) -> float:
        """Seconds for which the machine was suspended since the last call; 0.0 if it was not. Takes about half a
        microsecond.

        A thread may be held up between reading the two clocks. The order of reading ensures that the result never
        exceeds the suspended time: the clock that includes suspends is read first here, and last in `_most`.
        """
        passed_s = self._since_boot() - self._awake() - self._apart_s
        if passed_s < LEAST_S:
            return 0.0
        self._apart_s = self._most()
        return passed_s

    def _most(self) -> float:
        """The clocks' difference in seconds, plus any delay of this thread between the two readings."""
        awake_s = self._awake()
        return self._since_boot() - awake_s


def in_words(asleep_s: float) -> str:
    """The sentence that reports a suspend of `asleep_s` seconds."""
    return f"this machine was suspended for {duration(asleep_s)}; the step that it fell into is not counted."


def duration(seconds: float) -> str:
    """Seconds in words, for people."""
    if seconds < MINUTE_S:
        return f"{seconds:.1f} s"
    return f"{seconds / MINUTE_S:.0f} min" if seconds < HOUR_S else f"{seconds / HOUR_S:.1f} h"
