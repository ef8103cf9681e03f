"""One line about a process that ended without a word, as native libraries end it when they get no more memory."""

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
_open: list[int] = []  # the pipe through which the child is told that all is well


@contextmanager
def last_words() -> Iterator[None]:
    """If this process's memory is limited, have a child process say so if the process ends within the block. The exit
    code remains the one that the library left. Enter the block before there are threads.
    """
    limits = memory_limits()
    if not limits:
        yield
        return
    heard, ours = os.pipe()
    _open[:] = [ours]
    child = None
    with suppress(OSError):  # without memory for a child, the command runs anyway
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
    """Tell the child that this process goes on as another program, about whose end it need say nothing."""
    for ours in _open:
        with suppress(OSError):
            os.write(ours, ENDED)


def memory_limits() -> dict[str, int]:
    """The memory that this process may take, in KiB, by the shell's name of the limit."""
    taken = {name: resource.getrlimit(limit)[0] for name, limit in LIMITS.items()}
    return {name: size // 1024 for name, size in taken.items() if size != resource.RLIM_INFINITY}


def _watch(heard: int, limits: dict[str, int]) -> NoReturn:
    """Wait, in the child, for the end of the process or of its block. If the process ended first, say why."""
    try:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        os.closerange(0, 2)  # so that readers of the process's output do not wait for the child
        if os.read(heard, 1) != ENDED:
            listed = " and ".join(f"{name} is {kib}" for name, kib in limits.items())
            why = f"if no line above says why, a native library got no more memory ({listed}): give it more."
            os.write(2, f"placer: this process ended at once; {why}\n".encode())
    finally:
        os._exit(0)
