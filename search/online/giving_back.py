"""What a wrapped step holds, given back when it is closed or dropped."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

from placer.train.background import BackgroundThread
from placer.train.device_session import DeviceSession
from placer.train.live_step import LiveStep, end_thread
from search.online.planners import Planners


def give_back(live: LiveStep, planners: Sequence[Planners]) -> None:
    """End the planners and the live step, but not the store, which a search of another thread may be using."""
    for planner in planners:
        planner.close()
    live.close()


def give_back_soon(session: DeviceSession, thread: BackgroundThread, planners: Sequence[Planners]) -> None:
    """As `give_back`, of a live step that is gone: it would lead to the user's step, and that may lead to whoever waits
    to be dropped. In a thread, because nothing may be ended within the garbage collection that found it.
    """
    end = partial(_give_back, session, thread, planners)
    threading.Thread(target=end, daemon=True, name="placer-end").start()


def _give_back(session: DeviceSession, thread: BackgroundThread, planners: Sequence[Planners]) -> None:
    for planner in planners:
        planner.close()
    end_thread(thread, session)
    session.dropped()
