"""The events that a campaign reports while it runs; this base class shows nothing."""

from __future__ import annotations

from typing import Any

from experiments.campaign.cells import Cell
from experiments.campaign.store import StoredTrial


class CampaignProgress:
    """Receives each event as it happens; several cells may be under way at the same time."""

    def begin(self, done: int, total: int) -> None:
        """The campaign begins; `done` of `total` measurements are already stored."""

    def phase(self, text: str) -> None:
        """A new part begins."""

    def cell(self, cell: Cell, done: int, best_s: float, single_s: float) -> None:
        """The search of a cell begins, or goes on after `done` measurements.

        best_s: the best so far. single_s: the best single device. Both may be infinity.
        """

    def trial(self, cell: Cell, trial: StoredTrial, best_s: float) -> None:
        """One more measurement of a cell was stored; what is refused for lack of memory is none."""

    def ended(self, cell: Cell, why: str, skipped: int) -> None:
        """A cell ended; `skipped` of its measurements are not needed."""

    def final(self, cell: Cell, final: dict[str, Any]) -> None:
        """The best mapping of a cell was measured side by side with its baselines."""

    def failed(self, what: str, reason: str) -> None:
        """A measurement or a whole case failed; it may be tried again."""

    def end(self) -> None:
        """Nothing more will be measured."""
