"""How a divided variable is kept: one variable per part, cut along one axis."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class VariableParts:
    """A divided variable. bounds: of its parts along `axis`. nodes: the variable of each part."""

    axis: int
    bounds: tuple[int, ...]
    nodes: tuple[str, ...]

    def index(self, i: int) -> tuple[slice, ...]:
        """What of the whole part i is."""
        return (slice(None),) * self.axis + (slice(self.bounds[i], self.bounds[i + 1]),)
