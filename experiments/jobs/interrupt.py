"""Ctrl-C as a request: what is under way is finished, and what was measured is reported."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SAID = b"\ninterrupted: finishing what is under way, then the report; press again to stop at once\n"


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yields a function that returns whether Ctrl-C was pressed in the block. Pressed again, it interrupts as always.

    In a thread other than the main one, signals cannot be caught, and Ctrl-C works as always.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    pressed = False
    before = signal.getsignal(signal.SIGINT)

    def press(_: int, __: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, SAID)  # print may be in the middle of a line
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, press)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)
