"""Tells what a training's script decides, in the journal, and in which phase the script is."""

from __future__ import annotations

from typing import Any

from placer.phase_names import STARTING
from search.online.journal import Journal, Kind


class Narrator:
    """The narrator of one live step. step: number of calls so far. phase: one of placer/phase_names.py."""

    def __init__(self, journal: Journal) -> None:
        self.step, self.phase = 0, STARTING
        self._journal = journal

    def say(self, kind: Kind, sentence: str, **numbers: Any) -> None:
        """Note a decision in the journal."""
        self._journal.entry(self.step, kind, sentence, **numbers)

    def now(self, phase: str) -> None:
        """Set the current phase."""
        self.phase = phase
