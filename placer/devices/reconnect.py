"""Lost devices on their way back: own workers started anew in the background, others' addresses asked now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from placer.errors import PlacerError

POLL_S = 2.0
Attempt = Callable[[], bool]


class Reconnection:
    """Waits for devices in threads of its own; none of its methods waits.

    attempts: device name -> what is tried to have it back: True = it is there, False = to be tried again `POLL_S`
    after the last try began, PlacerError or OSError = given up (`failed` says why). clock: seconds.
    """

    def __init__(self, attempts: Mapping[str, Attempt], clock: Callable[[], float] = time.monotonic) -> None:
        self.failed: str | None = None
        self._clock = clock
        self._waiting = {name: _Try(attempt, clock()) for name, attempt in attempts.items()}

    def done(self) -> bool:
        """Whether all devices are back. Call it now and then: it is what tries again. Never so once `failed`."""
        for name, current in list(self._waiting.items()):
            if current.running():
                continue
            if current.found:
                del self._waiting[name]
            elif current.error is not None:
                self.failed = self.failed or current.error
            elif self._clock() >= current.began_s + POLL_S:
                self._waiting[name] = _Try(current.attempt, self._clock())
        return not self._waiting


class _Try:
    """One attempt, in a thread that does not keep the interpreter from ending."""

    def __init__(self, attempt: Attempt, began_s: float) -> None:
        self.attempt = attempt
        self.began_s = began_s
        self.found = False
        self.error: str | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def running(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.found = self.attempt()
        except (PlacerError, OSError, ValueError) as error:  # ValueError: its pipe was closed while it was waited for
            self.error = str(error)
