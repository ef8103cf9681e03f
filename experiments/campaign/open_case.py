"""A case that is open for its searches: what its problem is, and what a placement of it comes to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from experiments.campaign.cells import Case
from placer.errors import PlacerError
from placer.result import Failed, Measured, Result
from search.problem.problem import Placement, Problem

Told = Sequence[tuple[Placement, Result]]
Calibration = dict[str, Any] | None
"""Corrections to the problem's costs, as plain data; None where there are none."""


class CaseError(PlacerError):
    """A case cannot be opened, or not again; what else is to be searched may go on."""


class AwayError(CaseError):
    """A case cannot be opened now, because a device is away or its memory is held by others, which may pass."""


class InterruptedOpeningError(Exception):
    """Ctrl-C came while a case was being opened."""


class OpenCase(ABC):
    """What all searches of a case share. What `opened` returns is stored, so that a resumed search has the same."""

    kind: str
    clocked: bool  # whether placements are measured, so that failing may pass and a repeat may help
    profile: bytes | None = None  # what is stored with it, and too large to be read where nothing is searched

    @abstractmethod
    def opened(self) -> dict[str, Any]:
        """As plain data, what was found out before the first search, `singles` and `bound_s` among it."""

    @property
    @abstractmethod
    def singles(self) -> Told:
        """Each device alone, where it can run and hold everything, and what it came to."""

    @property
    def best_single_s(self) -> float:
        """Seconds on the fastest single device; infinity where none ran."""
        return min((result.step_s for _, result in self.singles if isinstance(result, Measured)), default=inf)

    @property
    @abstractmethod
    def bound_s(self) -> float:
        """Seconds that no placement is predicted below."""

    @abstractmethod
    def problem(self, calibration: Calibration) -> Problem:
        """What searchers search."""

    @abstractmethod
    def calibrated(self, told: Told, calibration: Calibration) -> Calibration:
        """The corrections by all that a search was told, starting from those it has."""

    def refused(self, placement: Placement, calibration: Calibration) -> Failed | None:
        """Why a placement is not evaluated; None if it is. What is refused is no failure of the campaign's."""
        return None

    @abstractmethod
    def evaluate(self, placement: Placement, calibration: Calibration) -> Result:
        """What a placement comes to."""

    def final(self, best: Placement | None, calibration: Calibration) -> dict[str, Any] | Failed | None:
        """The best placement, the best single device and the untouched step side by side; None where nothing runs.
        best: None where only devices alone ran.
        """
        return None

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Give back what it holds."""


Ready = Callable[[Case], tuple[OpenCase, Sequence[Placement]] | None]
"""Opens a case, stores what that found out, and returns what is carried over to its searches, too; None where the case
cannot be opened."""
