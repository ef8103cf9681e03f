"""Tries again what was refused, but seldom, because finding out the reason takes long: it looks at everything that the
program holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable

MOST_REFUSED_SHARE = 0.01  # share of the time that refusals may take


class RetryLater:
    """The schedule of an action that is tried again until it is no longer refused."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: seconds."""
        self._clock = clock
        self._next_s = -math.inf  # when the action may be tried again
        self._said = ""

    @property
    def is_due(self) -> bool:
        """Whether the action may be tried again."""
        return self._clock() >= self._next_s

    def attempt(self, act: Callable[[], str | None]) -> str | None:
        """Try `act`. Returns why it was refused, None if it was done. Only a refusal delays the next attempt."""
        begin_s = self._clock()
        why = act()
        ended_s = self._clock()
        self._next_s = -math.inf if why is None else ended_s + (ended_s - begin_s) / MOST_REFUSED_SHARE
        return why

    def is_news(self, said: str) -> bool:
        """Whether `said` differs from what was said last. Remembers it as said."""
        was, self._said = self._said, said
        return said != was
