"""Tries now and then what may be refused, and seldom, because finding out why takes long: a look at all that a program
holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable

MOST_REFUSED_SHARE = 0.01  # share of the time that refusals may take


class RetryLater:
    """Something that is to be done as soon as nothing is against it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: seconds."""
        self._clock = clock
        self._next_s = -math.inf  # when it may be tried again
        self._said = ""

    @property
    def is_due(self) -> bool:
        """Whether it may be tried again."""
        return self._clock() >= self._next_s

    def attempt(self, act: Callable[[], str | None]) -> str | None:
        """Try it; returns why it was refused, None where it was done. Only a refusal delays the next attempt."""
        begin_s = self._clock()
        why = act()
        ended_s = self._clock()
        self._next_s = -math.inf if why is None else ended_s + (ended_s - begin_s) / MOST_REFUSED_SHARE
        return why

    def is_news(self, said: str) -> bool:
        """Whether that was not the last thing said of it; now it is."""
        was, self._said = self._said, said
        return said != was
