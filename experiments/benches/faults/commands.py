"""A command as a user runs it. Its stderr is read while it runs, so that faults can fall into its stages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from experiments.benches.faults.leavings import Family

SEEN_S = 180.0  # within which a stage must begin
REST_S = 10.0  # in which the rest of what an ended command printed is read; a process that it left may hold its pipes


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int | None  # None if it did not end in time and was killed
    out: str
    lines: tuple[str, ...]  # of stderr
    seconds: float


class Running:
    """A running command. Its process and all that it started are killed at the end of the block."""

    def __init__(
        self,
        command: Sequence[str],
        family: Family,
        environment: dict[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """command: without the interpreter. environment: variables added to this process's own."""
        self.family, self.clock, self.begin_s = family, clock, clock()
        self.lines: list[tuple[float, str]] = []  # of stderr, with the seconds since the command began
        self._out: list[str] = []
        self._changed = threading.Condition()
        told = {**os.environ, **(environment or {}), **family.environment()}
        self.process = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
            text=True, errors="replace", env=told, start_new_session=True,
        )  # fmt: skip
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read_err, self._read_out)]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.family.end()
        for reader in self._readers:
            reader.join()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def wait_for(self, is_it: Callable[[str], bool], limit_s: float = SEEN_S) -> bool:
        """Wait for a line on stderr for which `is_it`. False if the command ends, or `limit_s` passes, before."""

        def is_there() -> bool:
            return any(is_it(line) for _, line in self.lines)

        with self._changed:
            self._changed.wait_for(lambda: is_there() or self.process.poll() is not None, limit_s)
            return is_there()

    def send(self, number: signal.Signals) -> bool:
        """Send the process a signal; False if it had ended."""
        if self.process.poll() is not None:
            return False
        self.process.send_signal(number)
        return True

    def ended(self, limit_s: float) -> Ended:
        """Wait for the end of the command; kill it if it takes longer than `limit_s`."""
        try:
            code: int | None = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            self.family.end()  # a worker may hold the pipes
            code = None
        seconds = self.clock() - self.begin_s
        for reader in self._readers:
            reader.join(REST_S)
        return Ended(code, "".join(self._out), tuple(line for _, line in self.lines), seconds)

    def _read_err(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.lines.append((self.clock() - self.begin_s, line.rstrip("\n")))
                self._changed.notify_all()
        self.process.wait()
        with self._changed:
            self._changed.notify_all()

    def _read_out(self) -> None:
        assert self.process.stdout is not None
        self._out.extend(self.process.stdout)


@contextmanager
def ctrl_c_is_heard() -> Iterator[None]:
    """Let processes that are started in the block hear Ctrl-C. If this process ignores Ctrl-C, because a script started
    it in the background, its children would ignore it, too. Main thread only.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
