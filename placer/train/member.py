"""What a session of devices needs of each live step that shares it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import tensorflow as tf

from placer.train.variables.replicas import Use


class Member(Protocol):
    """A live step of a session, as it is needed when devices are lost or come back."""

    def pause(self) -> None:
        """Cancel work in the background that has not begun, and wait for the rest."""

    def finish(self) -> None:
        """Wait for all work in the background."""

    def rebuild(self) -> None:
        """Forget what was built; build what steps need on the devices that are left."""

    @property
    def uses(self) -> Iterable[Use]:
        """What its placed steps need of the variables."""

    @property
    def variables(self) -> Iterable[tf.Variable]:
        """The user's variables that its captured steps use."""

    @property
    def is_resting(self) -> bool:
        """Whether it runs untouched, and needs no device for now."""
