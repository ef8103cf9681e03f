"""A survey's visits to containers and arrays: what they hold now, and the checks of whether they still do."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

import numpy as np

from placer import tf_internals
from placer.trace.python.guard import Guard
from placer.trace.python.kinds import is_plain, plain_key
from placer.trace.signature import Same

MOST_ARRAY_BYTES = 64 * 2**10


class UnguardableError(Exception):
    """The step reads something that cannot be watched; the message is the reason, in words."""


class Walk(Protocol):
    """The part of a survey that visits to containers use."""

    guard: Guard
    tokens: list[tuple[str, Hashable]]

    def child(self, label: str, value: Any) -> None:
        """Note what is at a place; what it holds in turn is visited later."""

    def is_known(self, value: Any) -> bool:
        """Whether a value was met before."""

    def rest(self, found: Any, plain: type, label: str) -> None:
        """Visit the attributes of an object that is a container of the class `plain`, too."""


def visit_dict(walk: Walk, found: Any, label: str) -> None:
    """Its keys and values, in their order."""
    walk.guard.whole(found.keys())
    walk.guard.whole(found.values())
    for key, value in found.items():
        walk.child(f"a key of {label}", key)
        walk.child(f"{label}[{key!r}]" if is_plain(key) else f"{label}[...]", value)
    walk.rest(found, dict, label)


def visit_list(walk: Walk, found: Any, label: str) -> None:
    """Its items; those of a deque, too."""
    stored = tf_internals.stored_list(found)
    if stored is None:
        walk.guard.whole(found)
    else:  # 20 times as fast
        walk.guard.whole(stored)
        walk.guard.check(lambda: tf_internals.stored_list(found) is stored)
    _visit_items(walk, found, label)
    walk.rest(found, list, label)


def visit_tuple(walk: Walk, found: Any, label: str) -> None:
    """Its items, which stay the same; of a named one its methods, too."""
    _visit_items(walk, found, label)
    walk.rest(found, tuple, label)


def _visit_items(walk: Walk, found: Any, label: str) -> None:
    walk.tokens.append((label, len(found)))
    for i, value in enumerate(found):
        walk.child(f"{label}[{i}]", value)


def visit_set(walk: Walk, found: Any, label: str) -> None:
    """Its items, which have no order; a frozenset's stay the same."""
    saved = frozenset(found)
    if all(map(is_plain, saved)):
        walk.tokens.append((label, frozenset(map(plain_key, saved))))
    else:
        walk.tokens.append((label, frozenset(map(Same, saved))))
    if isinstance(found, set):
        walk.guard.check(lambda: found == saved)
    for value in saved:
        if not is_plain(value) and not walk.is_known(value):
            walk.child(f"an item of {label}", value)
    walk.rest(found, set if isinstance(found, set) else frozenset, label)


def visit_bytes(walk: Walk, found: Any, label: str) -> None:
    """Of a bytearray or an array.array."""
    saved = bytes(found)
    walk.tokens.append((label, saved))
    walk.guard.check(lambda: bytes(found) == saved)


def visit_message(walk: Walk, found: Any, label: str) -> None:
    """All fields of a protobuf message. Raises UnguardableError for a large one."""
    saved = found.SerializePartialToString(deterministic=True)
    if len(saved) > MOST_ARRAY_BYTES:
        raise UnguardableError(f"it reads `{label}`, a {type(found).__name__} too large to compare before each call")
    walk.tokens.append((label, saved))
    walk.guard.check(lambda: found.SerializePartialToString(deterministic=True) == saved)


def array_token(walk: Walk, found: np.ndarray[Any, Any], label: str) -> Hashable:
    """The shape, type and values of an array. Raises UnguardableError for a large one."""
    if found.nbytes > MOST_ARRAY_BYTES or found.dtype.hasobject:
        raise UnguardableError(
            f"it reads `{label}`, an array of {found.nbytes:,} bytes, too many to compare before each call; "
            "make it a tf.constant or a tf.Variable"
        )
    saved = (found.shape, found.dtype.str, found.tobytes())
    walk.guard.check(lambda: (found.shape, found.dtype.str, found.tobytes()) == saved)
    return saved
