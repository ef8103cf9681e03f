"""The variables that the user reads after each step: they are fetched together, so that one transfer serves all."""

from __future__ import annotations

from collections.abc import Iterable

SINGLY = 3  # unusual variables fetched one by one; then all at once, because the user seems to want them all
MOST_USUAL = 32  # variables that are usual together; a user who reads more saves or evaluates, and not after each step


class Habits:
    """The usual variables, which are those that the user read after an earlier placed step. All sets hold ids."""

    def __init__(self) -> None:
        self._usual: set[int] = set()
        self._read: set[int] = set()  # since the latest placed step

    def after_step(self) -> None:
        """Count what was read since the step before as usual, unless nothing or more than MOST_USUAL variables were."""
        if self._read:
            self._usual = self._read if len(self._read) <= MOST_USUAL else self._usual
            self._read = set()

    def read_at_home(self, keys: Iterable[int]) -> None:
        """The user reads variables that are up to date: those that are usual stay so."""
        self._read.update(self._usual.intersection(keys))

    def read(self, keys: Iterable[int]) -> None:
        """The user reads variables that have to be fetched."""
        self._read.update(keys)

    @property
    def wants_all(self) -> bool:
        """Whether the user has read more than SINGLY unusual variables since the latest placed step."""
        return len(self._read - self._usual) > SINGLY

    def with_usual(self, keys: Iterable[int]) -> set[int]:
        """These variables, and all usual ones if one of these is usual."""
        keys = set(keys)
        return keys | self._usual if self._usual & keys else keys
