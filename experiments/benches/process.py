"""Processes in which benchmarks measure: for one command, for one call, or for many questions under caps."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import psutil

from experiments.benches.bench import Facts
from placer.devices.workers.worker import end_with_parent
from placer.devices.workers.workers import KEEP_MEMORY
from placer.errors import PlacerError, one_line

T = TypeVar("T")

POLL_S = 0.2
END_S = 30.0  # within which a process that has answered, or closed its pipe, must end by itself
GIB = 2**30
COMMAND = """from placer.devices.workers.worker import end_with_parent
end_with_parent({parent})
from placer.__main__ import main
main()"""
SPAWN = get_context("spawn")
SILENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "1"}  # otherwise each process prints notices


@dataclass(frozen=True)
class Caps:
    """The most that one network may take, and how often the process is renewed."""

    seconds: float = 150.0
    memory_bytes: int = 7 * GIB
    batch: int = 12  # networks after which the process is renewed


def command_facts(*arguments: str, seconds: float) -> Facts:
    """Run `placer ARGUMENTS --json --quiet` as a user does, in its own process. Returns its facts, or {"failed": line}
    if it fails or takes longer than `seconds`. The command is killed when the calling thread ends.
    """
    command = [sys.executable, "-c", COMMAND.format(parent=os.getpid()), *arguments, "--json", "--quiet"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"failed": f"it did not end within {seconds:.0f} s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"failed": lines[-1] if lines else f"exit code {done.returncode}"}
    return dict(json.loads(done.stdout))


def alone(call: Callable[..., T], *arguments: Any, seconds: float | None = None) -> T:
    """Return what `call` returns in a process and session of its own.

    Raises what `call` raises, and PlacerError if the process dies or takes longer than `seconds`.
    """
    ours, theirs = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=_answer, args=(theirs, call, arguments))
    process.start()
    theirs.close()
    try:
        if not ours.poll(seconds):
            raise PlacerError(f"it did not end within {seconds:.0f} s")
        found, error = ours.recv()
        process.join(END_S)
    except EOFError:
        process.join()
        raise PlacerError(f"its process ended with code {process.exitcode} and without a result") from None
    finally:
        process.kill()
        process.join()
        ours.close()
    if error is not None:
        raise error
    answer: T = found
    return answer


def facts_alone(call: Callable[..., Facts], *arguments: Any, seconds: float | None = None) -> Facts:
    """The same as `tried`, in a process and session of its own, which fails if it takes longer than `seconds`."""
    return tried(partial(alone, call, *arguments, seconds=seconds))


def tried(call: Callable[[], Facts]) -> Facts:
    """Return what `call` returns, or {"failed": line} if it fails, so that the other measurements go on."""
    try:
        return call()
    except Exception as error:
        return failed(error)


def failed(error: Exception) -> Facts:
    """Return {"failed": line}: a PlacerError by its message alone, other errors with their type."""
    return {"failed": one_line(str(error) if isinstance(error, PlacerError) else f"{type(error).__name__}: {error}")}


def some_failed(rows: Sequence[Facts]) -> Facts:
    """Return {"failed": line} if some of the rows failed, so that all are tried again; {} if none did."""
    lines = [row["failed"] for row in rows if "failed" in row]
    return {"failed": f"{len(lines)} of {len(rows)} failed, first: {lines[0]}"} if lines else {}


def forget_networks() -> None:
    """Free what the last network left in Keras and TensorFlow; a `forget` of objects that measure networks."""
    import keras  # slow to import; only the processes that measure need it

    keras.backend.clear_session()
    gc.collect()


class Doer(Protocol):
    """The object that a process makes once and then asks. Its other public methods take one argument, return facts."""

    def forget(self) -> None:
        """Called after every question."""


class Measurer:
    """The end that asks a `Doer` in its own process. Failures, deaths and exceeded caps are facts: skipped, detail."""

    def __init__(self, make: Callable[[], Doer], caps: Caps, clock: Callable[[], float] = time.monotonic) -> None:
        """make: is called in the process, so it must be picklable."""
        self.make, self.caps, self.clock = make, caps, clock
        self.process: Any = None
        self.connection: Connection | None = None
        self.asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.end()

    def ask(self, method: str, argument: Any, seconds: float | None = None) -> Facts:
        """Return what the doer's method returns, or {"skipped": why, "detail": more}. seconds: a cap for this call."""
        connection = self.connection if self.connection is not None else self._start()
        try:
            connection.send((method, argument))
            found = self._answer(connection, self.caps.seconds if seconds is None else seconds)
        except (EOFError, OSError):
            found = _skipped("died", f"the process ended with code {self._code()}")
        self.asked += 1
        if found.get("skipped") in ("time", "memory", "died") or self._is_spent():
            self.end()
        return found

    def end(self) -> None:
        """End the process; harmless when called twice."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
        if self.connection is not None:
            self.connection.close()
        self.process = self.connection = None
        self.asked = 0

    def _start(self) -> Connection:
        self.connection, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=_serve, args=(theirs, self.make), daemon=True)
        with environment(KEEP_MEMORY | SILENT):
            self.process.start()
        theirs.close()
        return self.connection

    def _answer(self, connection: Connection, most_s: float) -> Facts:
        begin_s = self.clock()
        while not connection.poll(POLL_S):
            if self.clock() - begin_s > most_s:
                return _skipped("time", f"more than {most_s:.0f} s")
            if self._memory_bytes() > self.caps.memory_bytes:
                return _skipped("memory", f"more than {self.caps.memory_bytes / GIB:.1f} GiB")
        return dict(connection.recv())

    def _memory_bytes(self) -> int:
        with suppress(psutil.Error):
            return int(psutil.Process(self.process.pid).memory_info().rss)
        return 0

    def _is_spent(self) -> bool:
        """Whether the process has answered enough questions, or its leftover memory would count against the next."""
        return self.asked >= self.caps.batch or self._memory_bytes() > self.caps.memory_bytes / 2

    def _code(self) -> int | None:
        self.process.join(END_S)  # its end of the pipe is closed before it has ended
        code: int | None = self.process.exitcode
        return code


@contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables for processes started in the block; those that are set already stay as they are."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _answer(connection: Connection, call: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """Send (what the call returns, None), or (None, what it raises)."""
    _begin()
    os.setsid()
    try:
        connection.send((call(*arguments), None))
    except Exception as error:
        connection.send((None, error))


def _begin() -> None:
    """End with the parent process, and send all prints to stderr, because stdout is for the benchmark's facts."""
    end_with_parent()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def _serve(connection: Connection, make: Callable[[], Doer]) -> None:
    """Answer questions until the other end is closed."""
    _begin()
    with suppress(EOFError, OSError):
        doer: Doer | None = None
        while True:
            method, argument = connection.recv()
            try:
                doer = doer or make()
                found = getattr(doer, method)(argument)
            except Exception as error:  # any error is a reason to skip the network
                found = _skipped("failed", one_line(f"{type(error).__name__}: {error}")[:300])
            connection.send(found)
            if doer is not None:
                doer.forget()


def _skipped(why: str, detail: str) -> Facts:
    return {"skipped": why, "detail": detail}
