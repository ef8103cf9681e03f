"""A watch on the process that started this one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

LOOK_S = 1.0


def when_parent_ends(call: Callable[[], object]) -> None:
    """Start a thread that calls `call` within about LOOK_S seconds after the parent process has ended.

    PR_SET_PDEATHSIG is not used: it acts when the thread that started this process ends, which may be earlier.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_S)
        call()

    threading.Thread(target=watch, daemon=True).start()
