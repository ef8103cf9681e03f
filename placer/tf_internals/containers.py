"""Lists and dicts that TensorFlow has put into wrappers, which track what is set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.python.trackable import data_structures


def stored_list(value: Any) -> list[Any] | None:
    """The list inside a wrapper of TensorFlow's that tracks what is set; None if the value is no such wrapper."""
    return value._storage if type(value) is data_structures.ListWrapper else None


def tracked_container(value: Any) -> tuple[Any, Callable[[], None]]:
    """The list or dict inside a wrapper of TensorFlow's, and the function to call after changing it. For any other
    value: the value itself, and a function that does nothing.
    """
    if type(value) is data_structures.ListWrapper:
        return value._storage, value._update_snapshot
    if type(value) is data_structures._DictWrapper:
        return value.__wrapped__, value._update_snapshot
    return value, lambda: None
