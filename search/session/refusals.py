"""Counts mappings that need not run, because the simulator says that they cannot, and what they lack."""

from __future__ import annotations

from dataclasses import dataclass

from placer.graph.held_memory import Lack
from placer.result import Failed

AS_SIMULATED = ", as simulated."  # with which every detail of `too_large` ends
NO_LINK = Failed("link", "a tensor would cross a link that is missing")


@dataclass
class Refusals:
    """How many times mappings were refused for lack of memory, and the least that one of them lacked."""

    count: int = 0
    nearest: Lack | None = None

    def add(self, lack: Lack) -> Failed:
        """Count a mapping that lacks memory. Returns its failure, for the searcher."""
        self.count += 1
        if self.nearest is None or lack.missing_bytes < self.nearest.missing_bytes:
            self.nearest = lack
        return too_large(lack)

    def text(self, what_became: str) -> str:
        """One line without an end mark: "3 mappings `what_became` for lack of memory ..."; "" if none lacked memory."""
        if self.nearest is None:
            return ""
        many = "1 mapping" if self.count == 1 else f"{self.count} mappings"
        return f"{many} {what_became} for lack of memory, as simulated; of the nearest, {self.nearest}"

    def none_fits(self, model: str = "") -> str:
        """One line without an end mark, if all mappings lacked memory. model: whose mappings these are; "" omits it."""
        of = f" of {model}" if model else ""
        asked = f"no mapping{of} that was asked fits into the devices' memory, as simulated"
        return f"{asked}; of the nearest, {self.nearest}"


def too_large(lack: Lack) -> Failed:
    """The result of a mapping that the devices' memory would not hold."""
    return Failed("memory", f"{lack}{AS_SIMULATED}")
