"""A command as a user runs it, whose lines on stderr are read while it runs, so that faults fall into its stages."""

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

SEEN_S = 180.0  # in which a stage must begin


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int | None  # None where it had not ended in time, and was killed
    out: str
    lines: tuple[str, ...]  # of stderr
    seconds: float


class Running:
    """A command that runs. Its process is killed at the end of the block, with all that it started."""

    def __init__(
        self,
        command: Sequence[str],
        family: Family,
        environment: dict[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """command: without the interpreter. environment: beside this process's own."""
        self.family, self.clock, self.begin_s = family, clock, clock()
        self.lines: list[tuple[float, str]] = []  # of stderr, with the seconds since it began
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
        """Wait until a line says it; False where the command ends, or `limit_s` is over, before."""

        def is_there() -> bool:
            return any(is_it(line) for _, line in self.lines)

        with self._changed:
            self._changed.wait_for(lambda: is_there() or self.process.poll() is not None, limit_s)
            return is_there()

    def send(self, number: signal.Signals) -> bool:
        """Send it a signal; False where it had ended."""
        if self.process.poll() is not None:
            return False
        self.process.send_signal(number)
        return True

    def ended(self, limit_s: float) -> Ended:
        """Wait for its end; kill it where it takes longer than `limit_s`."""
        try:
            code: int | None = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            self.family.end()  # a worker may hold the pipes
            code = None
        seconds = self.clock() - self.begin_s
        for reader in self._readers:
            reader.join(1.0)
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
    """What is started in the block hears Ctrl-C: where this process ignores it, because a script started it in the
    background, what it starts would, too. Main thread only.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
