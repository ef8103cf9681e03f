"""A plan of splits: which ops of a step are divided, along which factor, and into how many parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from placer.errors import BadInputError, short

LOCAL = "local"
"""The way in which each part of a batch normalisation uses the statistics of its own examples as if they were those of
the whole batch. It changes the mathematics."""


class PlanError(BadInputError):
    """A plan cannot be carried out. The message names the op and the reason."""


@dataclass(frozen=True)
class Division:
    """The division of one op. way: the name of a factor in the op's rule."""

    way: str
    parts: int


@dataclass(frozen=True)
class SplitPlan:
    """A plan of splits. divisions: node name -> its division; ops that are not in it stay whole.

    in_flight: how many micro-batches may be under way at once. The parts are then micro-batches, which are placed
    together and run one after another. None = each part is placed on its own.
    """

    divisions: Mapping[str, Division] = field(default_factory=dict)
    in_flight: int | None = None

    def __len__(self) -> int:
        return len(self.divisions)

    def __contains__(self, name: str) -> bool:
        return name in self.divisions

    def described(self, ops: int, variables: int) -> str:
        """Describe the plan in words. ops: how many the whole step has. variables: how many are divided."""
        parts = " or ".join(str(n) for n in sorted({division.parts for division in self.divisions.values()}))
        what = "parts" if self.in_flight is None else "micro-batches"
        local = ", each with its own statistics in batch normalisation (which changes the mathematics)"
        own = local if self.is_local else ""
        return f"{len(self)} of {ops} ops are divided into {parts} {what}{own}, and {variables} variables with them"

    @property
    def is_local(self) -> bool:
        """Whether some batch normalisation uses each part's own statistics, so that the step computes something
        different from the whole step.
        """
        return any(division.way == LOCAL for division in self.divisions.values())

    @property
    def micro_batches(self) -> int | None:
        """The number of micro-batches; None if each part is placed on its own, or no op is divided.

        Raises PlanError if ops have different numbers, or if `in_flight` is below 1.
        """
        if self.in_flight is None or not self.divisions:
            return None
        counts = sorted({division.parts for division in self.divisions.values()})
        if len(counts) > 1:
            raise PlanError(f"ops are divided into {counts[0]} and into {counts[1]} micro-batches; give one number.")
        if self.in_flight < 1:
            raise PlanError(f"{self.in_flight} micro-batches may be under way; give at least 1.")
        return counts[0]

    def regions(self) -> Iterator[tuple[Division, list[str]]]:
        """Yield each division with the names of the ops that are divided in this way, for people and for files."""
        named = sorted(self.divisions.items(), key=lambda item: (item[1].parts, item[1].way, item[0]))
        for division, items in groupby(named, key=lambda item: item[1]):
            yield division, [name for name, _ in items]

    @classmethod
    def of_regions(cls, regions: Iterable[tuple[Division, Sequence[str]]], in_flight: int | None = None) -> SplitPlan:
        """Make a plan of regions: the inverse of `regions`. Raises PlanError if an op is divided in two ways."""
        found: dict[str, Division] = {}
        for division, names in regions:
            for name in names:
                if found.setdefault(name, division) != division:
                    raise PlanError(f"op {short(name)} is divided in two ways; name it once.")
        return cls(found, in_flight)
