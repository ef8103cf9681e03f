"""How a divided variable is kept: one variable per part, cut along one axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class VariableParts:
    """The parts of a divided variable. bounds: where they begin and end along `axis`. nodes: the variable of each."""

    axis: int
    bounds: tuple[int, ...]
    nodes: tuple[str, ...]

    def index(self, i: int) -> tuple[slice, ...]:
        """The slices that cut part `i` out of the whole variable."""
        return (slice(None),) * self.axis + (slice(self.bounds[i], self.bounds[i + 1]),)

    def shape(self, whole: Sequence[int], i: int) -> list[int]:
        """The shape of part `i` of a variable of shape `whole`."""
        return [*whole[: self.axis], self.bounds[i + 1] - self.bounds[i], *whole[self.axis + 1 :]]


def in_parts(values: Mapping[str, Any], divided: Mapping[str, VariableParts]) -> dict[str, Any]:
    """The values of variables by node, with the value of each divided variable replaced by those of its parts."""
    found = {name: value for name, value in values.items() if name not in divided}
    for name, parts in divided.items():
        found |= {part: values[name][parts.index(i)] for i, part in enumerate(parts.nodes)}
    return found
