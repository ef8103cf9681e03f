"""Ends frozen workers of a training, so that calls that wait for them raise and the training goes on without them.

A separate process does this (`WorkerGuard` of `guard`), because a thread might never get the interpreter's lock
(docs/decisions/014-deadlines.md).
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType

from placer.devices.workers import guard
from placer.devices.workers.deadline import FIRST_S, LEAST_S, TIMES
from placer.devices.workers.setting import setting
from placer.devices.workers.workers import Workers

NONE = (0.0, 0.0)


class WorkerWatch:
    """Watches local workers from now on, including restarted ones.

    A worker that is stopped for LEAST_S (or PLACER_DEADLINE_S) is ended. All workers are ended if a call in `waiting`
    of `deadline` is overdue while no process computes.
    """

    def __init__(self, workers: Workers | None) -> None:
        """workers: None if they run elsewhere and cannot be ended from here; then overdue calls are only reported on
        stderr.

        Raises BadInputError if PLACER_DEADLINE_S is no number.
        """
        self.workers, self.setting_s = workers, setting()
        self.longest_s: dict[str, tuple[float, float]] = {}  # kind of call -> (second longest, longest)
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._free = list(range(guard.MOST_WAITS))
        self._shared_fd = os.memfd_create("placer_watch")
        os.ftruncate(self._shared_fd, guard.WATCHED_BYTES)
        self._shared = mmap.mmap(self._shared_fd, guard.WATCHED_BYTES)
        guard.STOPPED.pack_into(self._shared, 0, self.setting_s or LEAST_S)
        if workers is not None:
            workers.changed = self.renew
            self.renew()
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(guard.__file__)), "watch", str(self._shared_fd), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=(self._shared_fd,),
            start_new_session=True,  # Ctrl-C must reach only the training
        )

    def renew(self) -> None:
        """Watch the workers' current processes from now on."""
        processes = self.workers.processes if self.workers is not None else []
        for i in range(guard.MOST_PIDS):
            pid = processes[i].pid if i < len(processes) else 0
            guard.PID.pack_into(self._shared, guard.PIDS_AT + i * guard.PID.size, pid)

    def call(self, what: str, first: bool, loose: bool = False) -> WatchedCall:
        """Like `waiting` of `deadline`, but passes errors on unchanged. Any thread may call this. Calls may be nested;
        then only the inner call counts. A loose call does not count.
        """
        usual_s, _ = self.longest_s.get(what, NONE)  # the longest may have waited for a worker that froze for a while
        limit_s = max(self.setting_s or (FIRST_S if first else LEAST_S), TIMES * usual_s)
        return WatchedCall(self, what, limit_s, loose)

    def took(self, what: str, seconds: float) -> None:
        """Learn how long a call of the kind `what` took."""
        second_s, longest_s = self.longest_s.get(what, NONE)
        if seconds > second_s:
            self.longest_s[what] = min(seconds, longest_s), max(seconds, longest_s)

    def close(self) -> None:
        """End the guard; harmless when called twice."""
        if self.workers is not None:
            self.workers.changed = None
        if self._guard.poll() is None:
            self._guard.kill()
            self._guard.wait()
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            os.close(self._shared_fd)

    def enter(self, limit_s: float, loose: bool) -> tuple[float, float | None]:
        """Watch a call of this thread from now on. Return when it began, and the limit of a call around it, if any."""
        outer: float | None = getattr(self._mine, "limit_s", None)
        if outer is None:
            self._mine.slot = self._taken()
        begin_s = time.monotonic()
        self._arm(0.0 if loose else begin_s, limit_s)
        return begin_s, outer

    def leave(self, outer: float | None) -> None:
        """Stop watching this thread's call, and watch the call around it again. outer: that call's limit, if any."""
        self._arm(0.0 if outer is None else time.monotonic(), outer)
        if outer is None and self._mine.slot is not None:
            self._free.append(self._mine.slot)

    def _taken(self) -> int | None:
        """A slot for the calls of this thread; None if more threads wait than can be watched."""
        with self._lock:
            return self._free.pop() if self._free else None

    def _arm(self, begin_s: float, limit_s: float | None) -> None:
        self._mine.limit_s = limit_s
        if self._mine.slot is not None:
            at = guard.WAITS_AT + self._mine.slot * guard.WAIT.size
            guard.WAIT.pack_into(self._shared, at, begin_s, limit_s or 0.0)


class WatchedCall:
    """A context manager that watches one call."""

    __slots__ = ("_begin_s", "_limit_s", "_loose", "_outer", "_watch", "_what")

    def __init__(self, watch: WorkerWatch, what: str, limit_s: float, loose: bool) -> None:
        self._watch, self._what, self._limit_s, self._loose = watch, what, limit_s, loose

    def __enter__(self) -> None:
        self._begin_s, self._outer = self._watch.enter(self._limit_s, self._loose)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self._watch.took(self._what, time.monotonic() - self._begin_s)
        self._watch.leave(self._outer)
