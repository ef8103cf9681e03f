"""What a wrapped step holds, given back when it is closed or dropped."""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence

from placer.train.background import BackgroundThread
from placer.train.device_session import DeviceSession, Entry
from placer.train.live_step import LiveStep, end_thread
from search.online.planners import Planners


def give_back(live: LiveStep, planners: Sequence[Planners]) -> None:
    """End the planners and the live step, but not the store, which a search of another thread may be using."""
    for planner in planners:
        planner.close()
    live.close()


def give_back_soon(
    session: DeviceSession, entry: Entry, thread: BackgroundThread, planners: Sequence[Planners]
) -> None:
    """As `give_back`, of a live step that was dropped. It is not named here, because it leads to the user's step, and
    that may lead to whoever waits to be dropped. In a thread, because nothing may be ended within the garbage
    collection that found it.
    """
    given = session, entry, thread, planners
    threading.Thread(target=_give_back, args=given, daemon=True, name="placer-end").start()


def _give_back(session: DeviceSession, entry: Entry, thread: BackgroundThread, planners: Sequence[Planners]) -> None:
    session.dropped(entry)  # first, because a loss would have steps repeated that nobody knows any more
    for planner in planners:
        planner.close()
    end_thread(thread, session)
    gc.collect()  # its placed steps, whose variables may fill a device
    session.end_if_unused()
