"""What a wrapped step holds, given back when it is closed or dropped."""

from __future__ import annotations

import threading
from functools import partial

from placer.train.live_step import LiveStep
from search.online.controller import Controller


def give_back(live: LiveStep, controller: Controller, *, aside: bool = False) -> None:
    """End the planner and the live step, but not the store, which a search of another thread may be using.

    aside: as in `DeviceSession.leave`.
    """
    if controller.planner is not None:
        controller.planner.close()
    live.close(aside=aside)


def give_back_soon(live: LiveStep, controller: Controller) -> None:
    """As `give_back`, in a thread: a dropped step must not be ended within the garbage collection that found it."""
    end = partial(give_back, live, controller, aside=True)
    threading.Thread(target=end, daemon=True, name="placer-end").start()
