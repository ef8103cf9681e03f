"""Finds the objects of some classes in this process, without touching what other threads are building."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

_lock = Lock()


def instances_of(kinds: Iterable[type]) -> list[Any]:
    """All living objects of these classes, written in Python, and of their subclasses.

    Not by `gc.get_objects`: that also holds the tuples that other threads are filling just now, and where such a
    thread goes on before they are let go, CPython raises SystemError in it. An object refers to its class, and
    `gc.get_referrers` holds only what does. It passes over what `gc.freeze` put aside, so nothing is aside afterwards.
    """
    wanted = {found for kind in kinds for found in _with_subclasses(kind)}
    with _collector_paused():
        _unfreeze()
        referrers = gc.get_referrers(*wanted)
    return [thing for thing in referrers if type(thing) in wanted]


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Python 3.11's `gc.get_referrers` walks the collector's lists, and a collection moves objects to other lists.
    TensorFlow's tensors allocate when they are visited, so one may begin on the way: a crash (signal 11).
    """
    with _lock:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if was_enabled:
                gc.enable()


def _unfreeze() -> None:
    """Make the collector know all objects again. To put them aside once more afterwards would take with them all that
    was made since, and garbage among it would stay for good.
    """
    gc.unfreeze()


def _with_subclasses(kind: type) -> set[type]:
    return {kind}.union(*map(_with_subclasses, type.__subclasses__(kind)))
