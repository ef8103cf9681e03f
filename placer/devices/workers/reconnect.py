"""Reconnecting lost devices: restarts own workers in the background, and polls the addresses of others."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

from placer.errors import PlacerError

POLL_S = 2.0
MOST_FAILURES = 5  # of one device; after each, twice as long passes until the next try
Attempt = Callable[[], bool]


class Reconnection:
    """Waits for lost devices in background threads; its methods never block.

    attempts: device name -> function that tries to bring the device back. If it returns True, the device is back; if
    False, it is called again `POLL_S` after the last try began. If it raises PlacerError, OSError or ValueError, for
    example because a worker was killed again while it started, it is called again later, and the device is given up
    after MOST_FAILURES failures. clock: returns seconds.

    given_up: the reason by device name; these devices stay away.
    """

    def __init__(self, attempts: Mapping[str, Attempt], clock: Callable[[], float] = time.monotonic) -> None:
        self.given_up: dict[str, str] = {}
        self._clock = clock
        self._waiting = {name: _Try(attempt, clock()) for name, attempt in attempts.items()}
        self._failures = Counter[str]()

    def away(self) -> tuple[str, ...]:
        """The devices that are not back yet. Call it regularly: it starts the next tries."""
        for name, current in list(self._waiting.items()):
            if name in self.given_up or current.running():
                continue
            if current.found:
                del self._waiting[name]
            elif self._clock() >= current.began_s + POLL_S * 2 ** self._failures[name]:
                self._failures[name] += current.error is not None
                if current.error is not None and self._failures[name] >= MOST_FAILURES:
                    self.given_up[name] = current.error
                else:
                    self._waiting[name] = _Try(current.attempt, self._clock())
        return tuple(self._waiting)


class _Try:
    """One attempt, in a daemon thread, which does not keep the interpreter alive."""

    def __init__(self, attempt: Attempt, began_s: float) -> None:
        self.attempt = attempt
        self.began_s = began_s
        self.found = False
        self.error: str | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="placer-reconnect")
        self._thread.start()

    def running(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.found = self.attempt()
        except (PlacerError, OSError, ValueError) as error:  # ValueError: its pipe was closed meanwhile
            self.error = str(error)
