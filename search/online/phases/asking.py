"""Asks now and then whether something may be done: what a program holds takes long to find."""

from __future__ import annotations

import math
from collections.abc import Callable

ASKING = 0.01  # share of the time


class Asking:
    """Asks for a hundredth of the time, and knows whether the answer is another than the last one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: seconds."""
        self._clock = clock
        self._next_s = -math.inf  # when it may be asked again
        self._why: str | None = None  # not, as last answered
        self.is_news = False

    @property
    def is_due(self) -> bool:
        """Whether it may be asked again."""
        return self._clock() >= self._next_s

    def ask(self, question: Callable[[], str | None]) -> str | None:
        """The answer: why not, None where it was done."""
        begin_s = self._clock()
        why = question()
        ended_s = self._clock()
        self._next_s = ended_s + (ended_s - begin_s) / ASKING
        self.is_news, self._why = why != self._why, why
        return why
