"""Notes threads of the program that train without Placer beside the wrapped steps.

Joining or leaving workers gives all variables of the process new storage (`hooks.renew_all`). What a thread writes at
that moment may be lost without an error, so workers are neither joined nor left while such a thread trains.
"""

from __future__ import annotations

import threading
import time
from typing import Any
from weakref import WeakKeyDictionary, ref

from placer import tf_internals
from placer.trace.graph_def.access_order import READS

RECENT_S = 60.0  # a living thread that has trained within this time is assumed to go on training
_may_write: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()  # by concrete function
_mine = threading.local()


class Life:
    """An object that a thread keeps as long as it lives; a later one may be given the number of one that has ended."""


_latest_s: dict[int, tuple[ref[Life], float]] = {}  # by thread; when it last called a function that may write


def note_call(concrete: Any) -> None:
    """Note that this thread, which calls no wrapped step, calls a concrete function."""
    found = _may_write.get(concrete)
    if found is None:
        found = _may_write[concrete] = _writes_variables(concrete.graph)
    if found:
        if not hasattr(_mine, "life"):
            _mine.life = Life()
        _latest_s[threading.get_ident()] = ref(_mine.life), time.monotonic()


def why_not(done: str) -> str | None:
    """Why workers must not be joined or left now; None if no other thread trains. done: "joined" or "left"."""
    own, since_s = threading.get_ident(), time.monotonic() - RECENT_S
    latest = list(_latest_s.items())
    if not any(thread != own and life() is not None and at_s > since_s for thread, (life, at_s) in latest):
        return None
    return (
        f"another thread of this program trains without Placer, and may lose a step when workers are {done}; wrap its "
        "step, too, or train in one thread"
    )


def _writes_variables(graph: Any) -> bool:
    """Whether an op other than a plain read takes the handle of a variable that a function has captured."""
    handles = (inner for outer, inner in graph.captures if tf_internals.variables.is_handle_of_variable(outer))
    return any(op.type not in READS for inner in handles for op in inner.consumers())
