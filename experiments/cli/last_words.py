"""One line about a process that ended without a word, as native libraries end it where they get no more memory."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

LIMITS = {"ulimit -v": resource.RLIMIT_AS, "ulimit -d": resource.RLIMIT_DATA}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ENDED = b"."
_open: list[int] = []  # by which the child is told that all is well


@contextmanager
def last_words() -> Iterator[None]:
    """Where this process's memory is limited, a child says so if the block never ends. The exit code stays the one
    that the library left. Enter it before there are threads.
    """
    limits = memory_limits()
    if not limits:
        yield
        return
    heard, ours = os.pipe()
    _open[:] = [ours]
    child = None
    with suppress(OSError):  # without memory for a child, the command runs all the same
        child = os.fork()
    if child == 0:
        os.close(ours)
        _watch(heard, limits)
    os.close(heard)
    try:
        yield
    finally:
        with suppress(OSError):  # the child was killed
            os.write(ours, ENDED)
        os.close(ours)
        if child is not None:
            os.waitpid(child, 0)


def become_another() -> None:
    """This process goes on as another program, which ends as it likes."""
    for ours in _open:
        with suppress(OSError):
            os.write(ours, ENDED)


def memory_limits() -> dict[str, int]:
    """What this process may take, in KiB, by the shell's name of the limit."""
    taken = {name: resource.getrlimit(limit)[0] for name, limit in LIMITS.items()}
    return {name: size // 1024 for name, size in taken.items() if size != resource.RLIM_INFINITY}


def _watch(heard: int, limits: dict[str, int]) -> NoReturn:
    """In the child: wait until the process has ended, in whichever way."""
    try:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        os.closerange(0, 2)  # who reads what the process prints is not to wait for this one
        if os.read(heard, 1) != ENDED:
            listed = " and ".join(f"{name} is {kib}" for name, kib in limits.items())
            why = f"where no line above says why, a native library got no more memory ({listed}): give it more."
            os.write(2, f"placer: this process ended at once; {why}\n".encode())
    finally:
        os._exit(0)
