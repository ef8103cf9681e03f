"""The interface that a session of devices needs of each live step that shares it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import tensorflow as tf

from placer.train.variables.replicas import Use


class Member(Protocol):
    """A live step of a session, as the session uses it when devices are joined, left or lost."""

    def pause(self) -> None:
        """Cancel work in the background that has not begun, and wait for the rest."""

    def finish(self) -> None:
        """Wait for all work in the background."""

    def rebuild(self) -> None:
        """Forget what was built; build what steps need on the devices that are left."""

    def end(self, limit_s: float) -> None:
        """Leave the session, because the program ends, unless work in the background takes longer than `limit_s`."""

    @property
    def uses(self) -> Iterable[Use]:
        """The replicas of variables that this live step's placed steps need."""

    @property
    def variables(self) -> Iterable[tf.Variable]:
        """The user's variables that this live step's captured steps use."""

    @property
    def is_resting(self) -> bool:
        """Whether this live step runs untouched, and needs no device for now."""
