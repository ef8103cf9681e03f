"""Functions that Placer makes for lists of variables on their devices, kept for the next call with the same list."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

from placer import tf_internals

K = TypeVar("K", bound=Hashable)
MOST_KEPT = 256  # each move of variables may need some of its own
_serial = itertools.count()


class KeptFunctions(Generic[K]):
    """Functions by key: the MOST_KEPT used last are kept, and each runs without being optimised."""

    def __init__(self, what: str, made: Callable[[str, K], tf_internals.functions.FunctionDef]) -> None:
        """what: part of the functions' names. made: makes the function with this name for this key."""
        self._what, self._made = what, made
        self._names: dict[K, str] = {}

    def call(self, key: K, inputs: Sequence[Any], outputs: int) -> list[Any]:
        """Call the function for `key`, which has `outputs` outputs. Raises a tf.errors.OpError if a device is gone."""
        name = self._names.pop(key, None)
        if name is None:
            name = f"__placer_{self._what}_{next(_serial)}"
            tf_internals.functions.add_function(self._made(name, key))
        self._names[key] = name  # the latest at the end
        if len(self._names) > MOST_KEPT:
            tf_internals.functions.remove_function(self._names.pop(next(iter(self._names))))
        return tf_internals.functions.call_function(name, inputs, outputs, tf_internals.functions.plain_config())

    def forget(self) -> None:
        """Remove all functions; to be called after reconnecting, because earlier functions must not be called again."""
        for name in self._names.values():
            tf_internals.functions.remove_function(name)
        self._names.clear()
