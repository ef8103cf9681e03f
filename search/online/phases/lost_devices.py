"""Looks after devices between steps: joins devices that came back, checks now and then whether any was lost, and joins
workers again that still keep much of the mappings that were tried.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from placer.errors import listed
from search.online.interfaces import LiveStepLike
from search.online.phases.every import Every
from search.online.phases.retry_later import RetryLater
from search.online.trials.trials import Say

# Least steps and seconds between two checks whether an idle device was lost. Each check opens connections.
CHECK_EVERY, CHECK_EVERY_S = 50, 1.0


class LostDevices:
    """Looks after the devices of a live step's session."""

    def __init__(
        self, live: LiveStepLike, probe_every: int, say: Say, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """probe_every: steps between two checks whether devices came back. clock: seconds."""
        self.live, self._say = live, say
        self._looking, self._checking, self._counting = Every(probe_every), Every(CHECK_EVERY), Every(CHECK_EVERY)
        self._rejoining, self._joining_anew, self._clock = RetryLater(clock), RetryLater(clock), clock
        self._checked_s = -math.inf  # when it was last checked whether an idle device was lost
        self._given_up = set[tuple[str, str]]()  # devices and reasons that were reported

    def due(self, step: int) -> int:
        """Return in how many steps `check` or `join_anew_if_due` may have something to do."""
        return min(self._looking.left(step), self._checking.left(step))

    def check(self, step: int) -> None:
        """Join devices that are back, or say once why not, or which are given up. Otherwise let the session check now
        and then whether any was lost.
        """
        session = self.live.session
        looks, checks = self._looking.passed(step), self._checking.passed(step)
        is_due = looks and self._rejoining.is_due
        if session.missing and is_due and (back := session.back()):
            why = self._rejoining.attempt(session.rejoin)
            if why is not None and self._rejoining.is_news(f"{listed(back)}: {why}"):
                self._say(
                    "lost", f"{listed(back)} came back, but is not joined: {why}. Searches that begin now wait for it."
                )
        elif session.missing and is_due and (news := session.given_up.items() - self._given_up):
            self._given_up |= news
            for name, why in sorted(news):
                self._say(
                    "lost",
                    f"{name} is given up: its worker cannot be started ({why.rstrip('.')}). What was placed goes on "
                    "without it; no search begins any more until the program is started again.",
                )
        elif checks and self._clock() - self._checked_s >= CHECK_EVERY_S:  # nothing else notices a lost idle worker
            self._checked_s = self._clock()
            session.suspect()

    def join_anew_if_due(self, step: int) -> bool:
        """Leave and join workers again if they keep much of mappings that were tried. Returns whether that was done and
        no device is missing. Then, of all that was built, only the live step's current mode may still be used.
        """
        session = self.live.session
        if not (self._counting.passed(step) and session.keeps_much and self._joining_anew.is_due):
            return False
        begin_s = self._clock()
        why = self._joining_anew.attempt(session.join_anew)
        reason = "they keep something of each mapping that was tried"
        if why is not None:
            if self._joining_anew.is_news(why):
                self._say("joined", f"the workers should be left and joined again, because {reason}, but {why}.")
            return False
        took_s = self._clock() - begin_s
        self._say(
            "joined", f"the workers were left and joined again, because {reason}; {took_s:.1f} s.", seconds=took_s
        )
        return not session.missing
