"""Lists and dicts that TensorFlow has put wrappers around, to track what is set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.python.trackable import data_structures


def stored_list(value: Any) -> list[Any] | None:
    """The list that TensorFlow put a wrapper around, which tracks what is set; None where the value is no wrapper."""
    return value._storage if type(value) is data_structures.ListWrapper else None


def tracked_container(value: Any) -> tuple[Any, Callable[[], None]]:
    """The list or dict that TensorFlow put a wrapper around, and what to call when that was changed; the value itself,
    and nothing to do, where it is no wrapper.
    """
    if type(value) is data_structures.ListWrapper:
        return value._storage, value._update_snapshot
    if type(value) is data_structures._DictWrapper:
        return value.__wrapped__, value._update_snapshot
    return value, lambda: None
