"""A watch on the process that started this one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

LOOK_S = 1.0


def when_parent_ends(call: Callable[[], object]) -> None:
    """Have a thread `call` within about LOOK_S after the parent has ended.

    Not by PR_SET_PDEATHSIG, which goes by the thread that started this process, and threads end earlier.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_S)
        call()

    threading.Thread(target=watch, daemon=True).start()
