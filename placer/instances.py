"""Finds the objects of some classes in this process, without touching what other threads are building."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any


def instances_of(kinds: Iterable[type]) -> list[Any]:
    """All living objects of these classes, written in Python, and of their subclasses.

    Not by `gc.get_objects`: that also holds the tuples that other threads are filling just now, and where such a
    thread goes on before they are let go, CPython raises SystemError in it. An object refers to its class, and
    `gc.get_referrers` holds only what does.
    """
    wanted = {found for kind in kinds for found in _with_subclasses(kind)}
    return [thing for thing in gc.get_referrers(*wanted) if type(thing) in wanted]


def _with_subclasses(kind: type) -> set[type]:
    return {kind}.union(*map(_with_subclasses, type.__subclasses__(kind)))
