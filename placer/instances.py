"""Finds the objects of some classes in this process, without touching what other threads are building."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

_lock = Lock()


def instances_of(kinds: Iterable[type]) -> list[Any]:
    """All living objects of these classes, which must be written in Python, and of their subclasses.

    `gc.get_objects` is not used: it also holds tuples that other threads are filling at the moment, and if such a
    thread goes on before they are released, CPython raises SystemError in it. `gc.get_referrers` holds only objects
    that refer to a class, as its instances do. It skips objects that `gc.freeze` put aside, so these are unfrozen
    before, and stay so.
    """
    wanted = {found for kind in kinds for found in _with_subclasses(kind)}
    with _collector_paused():
        _unfreeze()
        referrers = gc.get_referrers(*wanted)
    return [thing for thing in referrers if type(thing) in wanted]


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Within the block, no garbage collection runs. Python 3.11's `gc.get_referrers` walks the collector's lists, and a
    collection moves objects to other lists. TensorFlow's tensors allocate when they are visited, so that a collection
    might begin during the walk and crash the process (signal 11).
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
    """Make the collector know all objects again. They are not frozen again afterwards, because that would also freeze
    all objects made since, and garbage among these would stay forever.
    """
    gc.unfreeze()


def _with_subclasses(kind: type) -> set[type]:
    return {kind}.union(*map(_with_subclasses, type.__subclasses__(kind)))
