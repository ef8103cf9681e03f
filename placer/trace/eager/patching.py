"""Replaces attributes of libraries for a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(attributes: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Set attributes of modules and classes within the block; then give them their old values, or delete those that are
    new. attributes: (owner, name, value) of each. The caller holds the lock `patching`, because other threads see the
    new values, too.
    """
    before = []
    try:
        for owner, name, value in attributes:
            before.append((owner, name, vars(owner).get(name)))
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in reversed(before):
            delattr(owner, name) if value is None else setattr(owner, name, value)
