"""Deadlines of remote calls: a call that does not return in time is ended, and the lost devices are reported.

TensorFlow waits forever for a frozen worker, and its calls cannot be interrupted. Only the end of the worker's process,
which gRPC notices, ends such a call (docs/decisions/014-deadlines.md).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ContextDecorator, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol

import tensorflow as tf

from placer.devices.workers import guard
from placer.devices.workers.setting import setting
from placer.devices.workers.workers import Workers
from placer.errors import PlacerError, listed, one_line

# A call may take TIMES as long as the longest of its kind so far (in a training, the second longest: `worker_watch`),
# and at least LEAST_S; or at least FIRST_S, if it compiles, moves variables or consists of many calls.
TIMES, LEAST_S, FIRST_S = 20.0, 60.0, 300.0  # PLACER_DEADLINE_S replaces LEAST_S and FIRST_S
TEXT_BYTES = guard.SHARED_BYTES - guard.TEXT_AT
NOTICE_S = 2.0  # how long a process that has just failed may take to end
POLL_S = 0.05
NEXT = "what was measured before is in the store, if you gave one; check that machine, and run the command again."
EXIT_CODES = {guard.INTERRUPTED: 130, guard.TERMINATED: 143}  # as if the signal ended the process; else 1
LOST_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.InternalError,
    tf.errors.UnknownError,
    tf.errors.DeadlineExceededError,
)  # what a call may raise if a worker is lost; whether a worker is lost is checked separately


class DeviceLostError(PlacerError):
    """A device's process ended, or did not answer in time, during a remote call."""


class Deadlines:
    """Deadlines of this process's calls to the devices `names`. workers: their processes; None if run elsewhere."""

    def __init__(self, names: Sequence[str], workers: Workers | None, lost: Callable[[], Sequence[str]]) -> None:
        """lost: returns the devices that do not answer. Raises BadInputError if PLACER_DEADLINE_S is no number."""
        self.names, self.workers, self.lost = tuple(names), workers, lost
        self.setting_s = setting()
        self.longest_s: dict[str, float] = {}
        self.what = ""
        self._texts: dict[str, bytes] = {}  # the line that the guard would print, by `what`
        self._shared_fd = os.memfd_create("placer_deadline")
        os.ftruncate(self._shared_fd, guard.SHARED_BYTES)
        self._shared = mmap.mmap(self._shared_fd, guard.SHARED_BYTES)
        self._open()

    def _open(self) -> None:
        told, tell = os.pipe()
        pids = [] if self.workers is None else [process.pid for process in self.workers.processes]
        numbers = [self._shared_fd, tell, os.getpid(), *pids]
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(guard.__file__)), *map(str, numbers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=(self._shared_fd, tell),
            start_new_session=True,  # Ctrl-C reaches it through the pipe
        )
        os.close(tell)
        assert self._guard.stdin is not None
        self._signals = self._guard.stdin.fileno()
        self._before: int | None = None
        if threading.current_thread() is threading.main_thread():
            os.set_blocking(self._signals, False)
            self._before = signal.set_wakeup_fd(self._signals, warn_on_full_buffer=False)
            self._hangup = signal.getsignal(signal.SIGHUP)
            # Local workers can be ended: then Python gets its turn, and the program's own handler runs.
            self._hangs_up = self._hangup is signal.SIG_DFL or (self.workers is None and callable(self._hangup))
            if self._hangs_up:
                _exit_at_hangup()
        threading.Thread(target=self._wait_for_the_end, args=(told,), daemon=True, name="placer-deadline").start()

    def close(self) -> None:
        """End the guard, which may have ended by itself; harmless when called twice."""
        assert self._guard.stdin is not None
        if self._guard.stdin.closed:
            return
        if self._before is not None:
            signal.set_wakeup_fd(self._before)
            if self._hangs_up:
                signal.signal(signal.SIGHUP, self._hangup)
        self._guard.kill()
        self._guard.wait()
        self._guard.stdin.close()
        os.close(self._shared_fd)

    @contextmanager
    def call(self, what: str, first: bool, loose: bool = False) -> Iterator[None]:
        """See `waiting`."""
        (outer_s, outer_limit_s, _, outer_loose), outer_what = guard.CALL.unpack_from(self._shared, 0), self.what
        begin_s = time.monotonic()
        least_s = self.setting_s or (FIRST_S if first else LEAST_S)
        limit_s = max(least_s, TIMES * self.longest_s.get(what, 0.0))
        self._arm(what, begin_s, limit_s, loose)
        try:
            yield
            if not loose:
                self.longest_s[what] = max(self.longest_s.get(what, 0.0), time.monotonic() - begin_s)
        except LOST_ERRORS as error:
            lost = self._lost_by(error)
            if lost:
                raise DeviceLostError(self._said(lost, what, limit_s)) from error
            raise
        except RuntimeError as error:
            if "KeyboardInterrupt" in str(error):  # Ctrl-C came while TensorFlow was making another error
                raise KeyboardInterrupt from None
            raise
        finally:
            self._arm(outer_what, outer_s, outer_limit_s, outer_loose)

    def _arm(self, what: str, begin_s: float, limit_s: float, loose: bool) -> None:
        self.what = what
        if what not in self._texts:
            line = one_line(f"placer: {listed(self.names)} did not answer while {what}; {NEXT}").encode()
            self._texts[what] = line[:TEXT_BYTES].ljust(TEXT_BYTES, b"\0")
        self._shared[guard.TEXT_AT :] = self._texts[what]
        guard.CALL.pack_into(self._shared, 0, begin_s, limit_s, _is_patient(), loose)

    def _lost_by(self, error: BaseException) -> tuple[str, ...]:
        """The devices that are lost; waits up to NOTICE_S for a process that is about to end."""
        deadline = time.monotonic() + NOTICE_S
        while True:
            if self._reason():
                return self._at_fault()
            lost = tuple(self.lost())
            if lost or time.monotonic() > deadline:
                return lost
            if "context_id" in str(error):  # a worker was restarted meanwhile
                return self.names
            time.sleep(POLL_S)

    def _reason(self) -> int:
        """Why the guard ended the workers; 0 if it did not."""
        return int(guard.VERDICT.unpack_from(self._shared, guard.VERDICT_AT)[0])

    def _at_fault(self) -> tuple[str, ...]:
        """The devices whose processes the guard found stopped or ended; all devices if it found none."""
        _, at_fault = guard.VERDICT.unpack_from(self._shared, guard.VERDICT_AT)
        return tuple(name for i, name in enumerate(self.names[:64]) if at_fault >> i & 1) or self.names

    def _said(self, lost: Sequence[str], what: str, limit_s: float) -> str:
        how = {
            guard.OVERDUE: f"did not answer within {limit_s:.0f} s",
            guard.INTERRUPTED: "did not answer when Ctrl-C was pressed",
            guard.TERMINATED: "did not answer when this was to end",
        }.get(self._reason(), "was lost" if len(lost) == 1 else "were lost")
        return f"{listed(lost)} {how} while {what}{self._killed(lost)}; {NEXT}"

    def _killed(self, lost: Collection[str]) -> str:
        """A note that SIGKILL ended a lost worker that was started here; "" if not, or if the guard sent it."""
        processes = [] if self.workers is None or self._reason() else self.workers.processes
        codes = (process.poll() for name, process in zip(self.names, processes, strict=False) if name in lost)
        return " (ended by SIGKILL, as by the kernel where memory runs out)" if -signal.SIGKILL in codes else ""

    def _wait_for_the_end(self, told: int) -> None:
        """Run in a thread: if the guard cannot end a call, call the writers of `at_the_end`, and end this process."""
        said = os.read(told, 1)
        os.close(told)
        if said != guard.GIVE_UP:
            return
        _, limit_s, *_ = guard.CALL.unpack_from(self._shared, 0)
        said_of_it = self._said(self._at_fault(), self.what, limit_s)
        line = one_line(f"placer: {said_of_it}")
        for write in (*_last_words,):
            with suppress(Exception):
                write(said_of_it)
        shown = "\x1b[?25h" if sys.stderr.isatty() else ""  # a progress bar hides the cursor
        os.write(2, f"{shown}{line}\n".encode())
        os._exit(EXIT_CODES.get(self._reason(), PlacerError.exit_code))


class Keeper(Protocol):
    """An object that keeps the deadlines of remote calls."""

    def call(self, what: str, first: bool, loose: bool = False) -> AbstractContextManager[None]:
        """See `waiting`."""

    def close(self) -> None:
        """Stop keeping deadlines."""


_open: Keeper | None = None  # a single one, because TensorFlow joins one set of workers in a process
_last_words: list[Callable[[str], object]] = []


class waiting(ContextDecorator):  # noqa: N801, reads as a statement, and is no generator because every step enters it
    """A block of remote calls with a deadline; as a decorator, a function with one. Without a keeper, does nothing.

    Raises DeviceLostError if a worker is lost or does not answer in time.
    """

    def __init__(self, what: str, *, first: bool = False, loose: bool = False) -> None:
        """what: follows "while" in the error. first: whether the block compiles, moves variables or consists of many
        calls. loose: whether the block does much else, so that only time in which no process computes counts.
        """
        self._asked = what, first, loose
        self._call: AbstractContextManager[None] | None = None

    def __enter__(self) -> None:
        if _open is not None:
            self._call = _open.call(*self._asked)
            self._call.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> bool | None:
        return self._call.__exit__(kind, error, at) if self._call is not None else None

    def _recreate_cm(self) -> waiting:
        what, first, loose = self._asked
        return waiting(what, first=first, loose=loose)


@contextmanager
def at_the_end(write: Callable[[str], object]) -> Iterator[None]:
    """Within the block, if this process has to be ended because a call does not end, `write` is called before, in
    another thread and with the sentence that will be printed.
    """
    _last_words.append(write)
    try:
        yield
    finally:
        _last_words.remove(write)


def keep_deadlines(names: Sequence[str], workers: Workers | None, lost: Callable[[], Sequence[str]]) -> Deadlines:
    """Keep deadlines in `waiting` from now on, until `drop_deadlines`. Arguments and errors as for `Deadlines`."""
    drop_deadlines()
    kept = Deadlines(names, workers, lost)
    kept_by(kept)
    return kept


def kept_by(keeper: Keeper) -> None:
    """Have `waiting` report to `keeper` from now on, until `drop_deadlines`."""
    global _open
    drop_deadlines()
    _open = keeper


def drop_deadlines() -> None:
    """Stop keeping deadlines."""
    global _open
    if _open is not None:
        _open.close()
        _open = None


def _is_patient() -> bool:
    """Whether Ctrl-C, if pressed now, asks to finish the current work. A handler may tell by its attribute `asks`; else
    every handler other than Python's own counts as asking.
    """
    handler = signal.getsignal(signal.SIGINT)
    return bool(getattr(handler, "asks", handler is not signal.default_int_handler))


def _exit_at_hangup() -> None:
    """Make SIGHUP call C's _exit with its number, 1, because Python's handlers wait for the interpreter's lock."""
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    libc.signal(int(signal.SIGHUP), ctypes.cast(libc._exit, ctypes.c_void_p))
