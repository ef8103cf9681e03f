"""What a page on a campaign shows, as plain data: its cells, its failures, and a record of each case."""

from __future__ import annotations

from dataclasses import dataclass

from search.page.record import RunRecord


@dataclass(frozen=True)
class CellRow:
    """One search. Step times are predicted or measured, as `kind` says; None if they are not known."""

    case: int  # index into the record's `cases`
    searcher: str
    seed: int
    kind: str
    state: str
    done: int
    total: int | None  # None: the spec no longer has it
    best_s: float | None
    best_single_s: float | None
    is_side_by_side: bool  # whether both were measured in turn with each other
    seconds: float
    failures: int
    ended: str = ""  # why nothing more is asked


@dataclass(frozen=True)
class Failure:
    """Something that failed, and why."""

    at: str  # date and time; "" if it is not known
    where: str
    reason: str
    detail: str


@dataclass(frozen=True)
class CampaignRecord:
    """All that a page shows of a campaign. cases: each with the searchers of all cases as `known_searchers`."""

    title: str
    subtitle: str
    summary: tuple[str, ...]  # sentences
    cases: tuple[RunRecord, ...]
    cells: tuple[CellRow, ...]
    failures: tuple[Failure, ...] = ()

    @property
    def searchers(self) -> tuple[str, ...]:
        """The names of the searchers, in the order of the cells."""
        return tuple(dict.fromkeys(cell.searcher for cell in self.cells))
