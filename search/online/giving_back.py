"""Gives back what a wrapped step holds, when the step is closed or dropped."""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence

from placer.train.background import BackgroundThread
from placer.train.device_session import DeviceSession, Entry
from placer.train.live_step import LiveStep
from search.online.planners import Planners


def give_back(live: LiveStep, planners: Sequence[Planners]) -> None:
    """End the planners and the live step, but not the store, which a search of another thread may be using."""
    for planner in planners:
        planner.close()
    live.close()


def give_back_soon(
    session: DeviceSession, entry: Entry, thread: BackgroundThread, planners: Sequence[Planners]
) -> None:
    """As `give_back`, for a live step that was dropped. Runs in a thread, because nothing may be ended within the
    garbage collection that found the step. Takes parts of the live step instead of itself, because a live step refers
    to the user's step, which may refer to the object that waits to be dropped.
    """
    given = session, entry, thread, planners
    threading.Thread(target=_give_back, args=given, daemon=True, name="placer-end").start()


def _give_back(session: DeviceSession, entry: Entry, thread: BackgroundThread, planners: Sequence[Planners]) -> None:
    session.dropped(entry)  # first, so that a lost device does not make the session repeat dropped steps
    for planner in planners:
        planner.close()
    session.end_thread(thread)
    gc.collect()  # frees its placed steps, whose variables may fill a device
    session.end_if_unused()
