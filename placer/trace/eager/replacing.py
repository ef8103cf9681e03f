"""Attributes of libraries that are others for a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(attributes: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """In the block, each of these modules and classes has this attribute with this value; then what it had before, or
    none. Under the lock `patching`, because other threads meet them, too.
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
