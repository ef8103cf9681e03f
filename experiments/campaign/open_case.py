"""A case that is open for its searches: its problem, and the result of each placement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from experiments.campaign.cells import Case
from placer.errors import PlacerError
from placer.graph.held_memory import Lack
from placer.result import Failed, Measured, Result
from search.problem.problem import Placement, Problem

Told = Sequence[tuple[Placement, Result]]
Calibration = dict[str, Any] | None
"""Corrections to the problem's costs, as plain data; None if there are none."""


class CaseError(PlacerError):
    """A case cannot be opened, or not opened again. The other cases can still be searched."""


class AwayError(CaseError):
    """A case cannot be opened now: a device is away, or other programs hold its memory. That may pass."""


class InterruptedOpeningError(Exception):
    """Ctrl-C came while a case was being opened."""


class OpenCase(ABC):
    """The state that all searches of a case share. The facts from `opened` are stored for resumed searches."""

    kind: str
    clocked: bool  # whether placements are measured; then a failure may pass, and a repeat may help
    profile: bytes | None = None  # stored separately, because it is large and seldom needed

    @abstractmethod
    def opened(self) -> dict[str, Any]:
        """The facts found out before the first search, as plain data; they include `singles` and `bound_s`."""

    @property
    @abstractmethod
    def singles(self) -> Told:
        """The placement on each single device that can run and hold everything, with its result."""

    @property
    def best_single_s(self) -> float:
        """Seconds on the fastest single device; infinity if none ran."""
        return min((result.step_s for _, result in self.singles if isinstance(result, Measured)), default=inf)

    @property
    @abstractmethod
    def bound_s(self) -> float:
        """Lower bound of the predicted seconds of any placement."""

    @abstractmethod
    def problem(self, calibration: Calibration) -> Problem:
        """The problem that searchers solve, with its costs corrected by `calibration`."""

    @abstractmethod
    def calibrated(self, told: Told, calibration: Calibration) -> Calibration:
        """The corrections fitted to all results in `told`, starting from `calibration`."""

    def lack(self, placement: Placement, calibration: Calibration) -> Lack | None:
        """The memory that a placement lacks as simulated; None if it fits. One that lacks memory is refused, which is
        neither a measurement nor a failure of the campaign's.
        """
        return None

    def learn(self, result: Result) -> None:  # noqa: B027 - most need no results
        """Learn from a result that was stored; also refuse, from then on, what must lack as much memory."""

    def open_again(self) -> None:  # noqa: B027 - most hold nothing
        """Open again what was lost. Raises CaseError if that fails, and InterruptedOpeningError."""

    @abstractmethod
    def evaluate(self, placement: Placement, calibration: Calibration) -> Result:
        """Return the result of a placement."""

    def final(self, best: Placement | None, calibration: Calibration) -> dict[str, Any] | Failed | None:
        """Measure the best placement, the best single device and the untouched step side by side; None if the case
        measures nothing. best: None if only single devices ran.
        """
        return None

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Release what the case holds."""


Ready = Callable[[Case], tuple[OpenCase, Sequence[Placement]] | None]
"""Opens a case and stores the facts about it. Returns the open case and the placements carried over to its searches, or
None if the case cannot be opened."""
