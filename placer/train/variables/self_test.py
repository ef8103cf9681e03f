"""Tests whether variables can be watched here, because that relies on names that any TensorFlow release may change."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import tensorflow as tf

from placer import tf_internals
from placer.tf_version import SUPPORTED
from placer.train.variables.hooks import unwatch, watch


class _Seen:
    """A watcher that counts reports."""

    def __init__(self) -> None:
        self.reads = self.writes = 0

    def will_read(self, variables: Iterable[tf.Variable]) -> None:
        """As in `Watcher`."""
        self.reads += 1

    def will_write(self, variables: Iterable[tf.Variable]) -> None:
        """As in `Watcher`."""
        self.writes += 1

    def after_write(self, variables: Iterable[tf.Variable]) -> None:
        """As in `Watcher`."""

    def read_aside(self, variables: Iterable[tf.Variable], reader: str) -> None:
        """As in `Watcher`."""


@cache
def unwatchable() -> str | None:
    """Why no variable can be watched here, in words; None if reads and writes of a scratch variable were seen."""
    with tf.init_scope():
        variable = tf.Variable([1.0, 2.0], trainable=False)
        unread = variable.assign([1.5, 2.5])  # another object of the same variable
        ways = {
            "a read": lambda: variable.numpy(),
            "an op that reads": lambda: tf.reduce_sum(variable),
            "a function that reads": tf.function(lambda: tf.reduce_sum(variable)),
            "an assignment": lambda: variable.assign([2.0, 3.0]),
            "a read of an unread variable": lambda: unread.numpy(),
            "an assignment to an unread variable": lambda: unread.assign([3.0, 4.0]),
            "a function that writes": tf.function(lambda: variable.assign_add([1.0, 1.0])),
        }
        for name, use in ways.items():
            use()  # functions are traced before they are watched
            seen = _Seen()
            try:
                watch(variable, seen)
                use()
            except Exception as error:
                return _unlike(f"{name} raised {type(error).__name__}")
            finally:
                unwatch(variable)
            if not (seen.writes if "writ" in name or "assign" in name else seen.reads):
                return _unlike(f"{name} was not seen")
        return (
            None
            if tf_internals.variables.is_eager(tf_internals.variables.handle_of(variable))
            else _unlike("a variable has no handle")
        )


def _unlike(what: str) -> str:
    tried = " and ".join(SUPPORTED)
    return f"its variables cannot be watched: {what} (TensorFlow {tf.__version__}; this was tried with {tried})"
