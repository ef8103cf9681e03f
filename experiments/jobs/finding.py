"""What a search finds, mapping by mapping and at its end, and how it reports progress."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from placer.graph.coarsen import Groups
from placer.graph.mapping import Mapping
from placer.graph.topology import Topology
from placer.result import Measured, Result
from search.problem.problem import Problem
from surrogate.simulate.timeline import Timeline


@dataclass(frozen=True)
class Row:
    """One measured mapping of the groups."""

    searcher: str
    mapping: Mapping
    result: Result
    predicted_s: float | None = None  # by the calibration on all that was measured
    ratio: float | None = None  # step of the best single device / this one, both in the anchor's time
    stored: bool = False  # whether an earlier session measured it
    asked_s: float | None = None  # as predicted when it was asked for, before it was measured


@dataclass(frozen=True)
class Finding:
    """What a search found. `best` and `best_single` were measured side by side at the end, `measured` before."""

    model: str
    ops: int
    topology: Topology
    problem: Problem
    groups: Groups
    measured: tuple[Row, ...]
    best: Row
    best_single: Row | None  # None where no single device can run it, or none that can was measured
    untouched: Measured  # the step as TensorFlow runs it in the coordinating process with all its cores
    tf_default_s: float | None  # the same, but only where that process has the topology's devices
    lower_bound_s: float
    switch_s: float | None  # median seconds from leaving one finalist to the end of the first step under another
    seed: int
    seconds: float
    interrupted: bool = False
    ended: tuple[str, ...] = ()  # why the search used fewer measurements than it might have
    pins: tuple[str, ...] = ()  # what had to run where
    trace: tuple[Timeline, Timeline] | None = field(default=None, repr=False)  # the best step, predicted and measured
    finalists: tuple[Row, ...] = ()  # all mappings that were measured side by side at the end
    tf_default: Measured | None = None  # measured with them

    @property
    def default_wins(self) -> bool:
        """Whether TensorFlow's own placement of the topology's devices beat every mapping: leave the step untouched.

        Never where ops are pinned, because it heeds no pins.
        """
        best_s = self.best.result.step_s if isinstance(self.best.result, Measured) else float("inf")
        return self.tf_default_s is not None and self.tf_default_s < best_s and not self.pins

    @property
    def mapping(self) -> Mapping:
        """The delivered mapping, of the captured graph's ops."""
        return self.groups.expand_mapping(Mapping(self.groups.graph, self.topology, self.best.mapping.devices))


def step_s(row: Row) -> float:
    """Infinity where it failed."""
    return row.result.step_s if isinstance(row.result, Measured) else inf


def fastest(rows: Iterable[Row]) -> Row | None:
    """Of what ran."""
    return min((row for row in rows if isinstance(row.result, Measured)), key=step_s, default=None)


def by_merit(rows: Iterable[Row]) -> list[Row]:
    """What ran: those that took all their repeats, by step time, then those that were stopped early, likewise.

    The winner of a race was faster than the others side by side; a figure of three steps may flatter.
    """
    ran = [row for row in rows if isinstance(row.result, Measured)]
    return sorted(ran, key=lambda row: (isinstance(row.result, Measured) and row.result.stopped_early, step_s(row)))


class Progress:
    """What a search reports while it runs; this one shows nothing."""

    def phase(self, text: str) -> None:
        """A new part of the job begins."""

    def begin(self, total: int) -> None:
        """`total` mappings may be measured."""

    def row(self, row: Row, best: Row | None) -> None:
        """One more mapping was measured; `best` is the fastest so far."""

    def end(self) -> None:
        """Nothing more will be measured."""
