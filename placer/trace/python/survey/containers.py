"""A survey's visits to containers: what they hold now, and the checks of whether they still do."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from placer import tf_internals
from placer.trace.python.kinds import is_plain, plain_key
from placer.trace.python.survey.objects import visit_rest
from placer.trace.python.survey.walk import MOST_ARRAY_BYTES, UnguardableError, Walk
from placer.trace.signature import Same


def visit_dict(walk: Walk, found: Any, label: str) -> None:
    """Visit the keys and values of a dict or another mapping, in their order."""
    keys, values, items = _views(found)
    walk.guard.whole(keys)
    walk.guard.whole(values)
    for key, value in items:
        walk.child(f"a key of {label}", key)
        walk.child(f"{label}[{key!r}]" if is_plain(key) else f"{label}[...]", value)
    visit_rest(walk, found, dict, label)


def _views(found: Any) -> tuple[Any, Any, Any]:
    """The keys, values and items that a dict really holds; methods of a class of the user's may return others."""
    kind: Any = next((one for one in (OrderedDict, dict) if issubclass(type(found), one)), None)
    if kind is None:  # a mapping that wraps a dict
        return found.keys(), found.values(), found.items()
    return kind.keys(found), kind.values(found), kind.items(found)


def visit_list(walk: Walk, found: Any, label: str) -> None:
    """Visit the items of a list or a deque."""
    stored = tf_internals.containers.stored_list(found)
    if stored is None:
        walk.guard.whole(found)
    else:  # 20 times as fast
        walk.guard.whole(stored)
        walk.guard.check(lambda: tf_internals.containers.stored_list(found) is stored)
    _visit_items(walk, found, label)
    visit_rest(walk, found, list, label)


def visit_tuple(walk: Walk, found: Any, label: str) -> None:
    """Visit the items of a tuple, which stay the same, and the methods of a named tuple."""
    _visit_items(walk, found, label)
    visit_rest(walk, found, tuple, label)


def _visit_items(walk: Walk, found: Any, label: str) -> None:
    walk.tokens.append((label, len(found)))
    for i, value in enumerate(found):
        walk.child(f"{label}[{i}]", value)


def visit_set(walk: Walk, found: Any, label: str) -> None:
    """Visit the items of a set, which have no order; those of a frozenset stay the same."""
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
    visit_rest(walk, found, set if isinstance(found, set) else frozenset, label)


def visit_bytes(walk: Walk, found: Any, label: str) -> None:
    """Visit the bytes of a bytearray or an array.array."""
    saved = bytes(found)
    walk.tokens.append((label, saved))
    walk.guard.check(lambda: bytes(found) == saved)


def visit_message(walk: Walk, found: Any, label: str) -> None:
    """Visit all fields of a protobuf message. Raises UnguardableError for a large one."""
    saved = found.SerializePartialToString(deterministic=True)
    if len(saved) > MOST_ARRAY_BYTES:
        raise UnguardableError(f"it reads `{label}`, a {type(found).__name__} too large to compare before each call")
    walk.tokens.append((label, saved))
    walk.guard.check(lambda: found.SerializePartialToString(deterministic=True) == saved)
