"""The process in which a case is measured: it ends with the case, and leaves nothing of TensorFlow behind.

Only in such a process may devices be joined after the model was traced (docs/decisions/002-untouched-first.md), and
only such a process can be ended if a call to a device never returns.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from experiments.campaign.measured.session import Known, opened
from experiments.campaign.open_case import AwayError, InterruptedOpeningError
from experiments.jobs.search.finding import Progress
from experiments.jobs.search.settings import SearchSettings
from placer.devices.workers.worker import end_with_parent
from placer.errors import PlacerError, one_line, what_failed
from search.problem.searcher import Stop, never

POLL_S = 0.2
END_S = 20.0  # in which the process must close its devices
SPAWN = get_context("spawn")
PHASE, DONE, LOST, AWAY, FAILED = "phase", "done", "lost", "away", "failed"


class ProcessError(PlacerError):
    """The process can no longer be used. reason: LOST if a device or the process itself was lost; AWAY if a device
    cannot be used now, which may pass; FAILED for a failure that will not pass.
    """

    def __init__(self, said: str, reason: str) -> None:
        super().__init__(said)
        self.reason = reason


class CaseProcess:
    """A `Session` in a separate process, which leaves the terminal's session, so that Ctrl-C reaches only this one."""

    def __init__(
        self, settings: SearchSettings, known: Known | None, phase: Callable[[str], None], over: Stop = never
    ) -> None:
        """Starts the process and waits until its devices are open. `found` then holds the facts that its session found
        out: all if `known` is None, else those that have changed, or None.

        Raises ProcessError if that fails, and InterruptedOpeningError if `over()`.
        """
        self._connection, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_serve, args=(theirs, settings, known))
        self._process.start()
        theirs.close()
        try:
            self.found: dict[str, Any] | None
            self.found, self.profile = self._answer(phase, over)
        except BaseException:
            self.close(at_once=True)
            raise

    def ask(self, method: str, *arguments: Any, limit_s: float) -> Any:
        """The result of the session's `method`. Raises ProcessError, also if that takes longer than `limit_s`."""
        try:
            self._connection.send((method, arguments))
        except OSError:
            raise self._ended() from None
        until_s = time.monotonic() + limit_s
        try:
            return self._answer(lambda _: None, lambda: time.monotonic() > until_s)
        except InterruptedOpeningError:
            self.close(at_once=True)
            raise ProcessError(f"no answer within {limit_s:.0f} s", LOST) from None

    def close(self, *, at_once: bool = False) -> None:
        """Have the process close its devices and end, or kill it `at_once`; harmless when called twice."""
        self._connection.close()
        if not at_once:
            self._process.join(END_S)
        self._process.kill()
        self._process.join()

    def _answer(self, phase: Callable[[str], None], over: Stop) -> Any:
        while True:
            while not self._connection.poll(POLL_S):
                if over():
                    raise InterruptedOpeningError
            try:
                kind, value = self._connection.recv()
            except (EOFError, OSError):
                raise self._ended() from None
            if kind == PHASE:
                phase(value)
            elif kind == DONE:
                return value
            else:
                raise ProcessError(value, kind)

    def _ended(self) -> ProcessError:
        self._process.join(END_S)
        return ProcessError(f"the process that measures ended with code {self._process.exitcode}", LOST)


def _serve(connection: Connection, settings: SearchSettings, known: Known | None) -> None:
    """Measure until the other end of the connection is closed, or until an error, such as a lost device."""
    end_with_parent()
    os.setsid()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print; stdout is for the campaign's facts
    with suppress(EOFError, OSError):
        try:
            with opened(settings, known, _Phases(connection)) as session:
                connection.send((DONE, (session.facts, session.known.profile)))
                while True:
                    method, arguments = connection.recv()
                    connection.send((DONE, getattr(session, method)(*arguments)))
        except EOFError:
            raise
        except Exception as error:  # whatever it is, the campaign goes on with a fresh process or another case
            connection.send(_said(error))


def _said(error: Exception) -> tuple[str, str]:
    from placer.devices.workers.deadline import DeviceLostError

    kinds = ((DeviceLostError, LOST), (AwayError, AWAY))
    kind = next((kind for of, kind in kinds if isinstance(error, of)), FAILED)
    said = what_failed(error)
    return kind, one_line(said if isinstance(error, PlacerError) else f"{type(error).__name__}: {said}")


class _Phases(Progress):
    """Sends each phase that begins over the connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def phase(self, text: str) -> None:
        """A new part begins."""
        self.connection.send((PHASE, text))
