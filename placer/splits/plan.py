"""A plan of splits: which ops of a step are divided, along what, into how many parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from placer.errors import BadInputError


class PlanError(BadInputError):
    """A plan cannot be carried out; names the op and the reason."""


@dataclass(frozen=True)
class Division:
    """How one op is divided. way: the name of a factor, as the op's rule calls it."""

    way: str
    parts: int


@dataclass(frozen=True)
class SplitPlan:
    """Node name -> how it is divided; ops that are not there stay whole."""

    divisions: Mapping[str, Division] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.divisions)

    def __contains__(self, name: str) -> bool:
        return name in self.divisions

    def described(self, ops: int, variables: int) -> str:
        """In words. ops: that the whole step has. variables: that are divided."""
        parts = " or ".join(str(n) for n in sorted({division.parts for division in self.divisions.values()}))
        return f"{len(self)} of {ops} ops are divided into {parts} parts, and {variables} variables with them"

    def regions(self) -> Iterator[tuple[Division, list[str]]]:
        """The ops that are divided alike, for people and for files."""
        named = sorted(self.divisions.items(), key=lambda item: (item[1].parts, item[1].way, item[0]))
        for division, items in groupby(named, key=lambda item: item[1]):
            yield division, [name for name, _ in items]

    @classmethod
    def of_regions(cls, regions: Iterable[tuple[Division, Sequence[str]]]) -> SplitPlan:
        """The inverse of `regions`. Raises PlanError where an op is in two."""
        found: dict[str, Division] = {}
        for division, names in regions:
            for name in names:
                if found.setdefault(name, division) != division:
                    raise PlanError(f"op {name!r} is divided in two ways; name it once.")
        return cls(found)
