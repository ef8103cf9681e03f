"""What a campaign reports while it runs; this one shows nothing."""

from __future__ import annotations

from typing import Any

from experiments.campaign.cells import Cell
from experiments.campaign.store import StoredTrial


class Progress:
    """What happens, as it happens; cells may be under way side by side."""

    def begin(self, done: int, total: int) -> None:
        """So many of all measurements were stored before."""

    def phase(self, text: str) -> None:
        """A new part begins."""

    def cell(self, cell: Cell, done: int, best_s: float, single_s: float) -> None:
        """The search of a cell begins, or goes on after so many measurements. best_s: so far; both may be infinity."""

    def trial(self, cell: Cell, trial: StoredTrial, best_s: float) -> None:
        """One more measurement of a cell was stored."""

    def ended(self, cell: Cell, why: str, skipped: int) -> None:
        """A cell ended; so many of its measurements will not be needed."""

    def final(self, cell: Cell, final: dict[str, Any]) -> None:
        """The best mapping of a cell was measured side by side with its baselines."""

    def failed(self, what: str, reason: str) -> None:
        """A measurement, or all of a case, failed, and may be tried again."""

    def end(self) -> None:
        """Nothing more will be measured."""
