"""The search of one cell that runs ahead of its store, in batches; each comes with the state to resume from."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.campaign.cell_search import CellSearch
from experiments.campaign.cells import Cell, Limits
from experiments.campaign.open_case import OpenCase
from experiments.campaign.store import StoredTrial
from search.problem.problem import Placement

Clock = Callable[[], float]

BATCH_S = 0.1  # of search in a batch: a message through Ray costs about a millisecond, and storing it another one


@dataclass(frozen=True)
class Point:
    """A point of a search between two measurements: its trials so far, and its state (None before the first)."""

    trials: tuple[StoredTrial, ...]
    state: dict[str, Any] | None

    def after(self, batch: Batch) -> Point:
        """The point after one more batch."""
        return Point((*self.trials, *batch.trials), batch.state)


@dataclass(frozen=True)
class Begun:
    """A search is ready. best_s: the best so far. single_s: the best single device. Both may be infinity."""

    best_s: float
    single_s: float


@dataclass(frozen=True)
class Batch:
    """The trials since the previous batch, and the state after them. best_s: the best so far, after each trial."""

    trials: tuple[StoredTrial, ...]
    best_s: tuple[float, ...]
    state: dict[str, Any] | None
    ended: str | None = None  # why nothing more is to be asked


def search_ahead(
    cell: Cell,
    case: OpenCase,
    carried: Sequence[Placement],
    point: Point,
    limits: Limits,
    batch_s: float = BATCH_S,
    clock: Clock = time.perf_counter,
) -> Iterator[Begun | Batch]:
    """Search from `point` to the limits or to the end of the search, and yield batches. The questions do not depend on
    the batches, unless the minutes cut a question short.

    carried: placements that the search asks for first. batch_s: seconds of search in a batch. A batch does not depend
    on later ones, so that a caller who keeps only the first batches can resume from the last of them. Only for cases of
    files: their results are not measured, so that no failure is worth a retry.
    """
    asked = [(trial.placement, trial.result) for trial in point.trials]
    search = CellSearch(cell, case, point.state, asked, carried=carried)
    yield Begun(search.best_s, case.best_single_s)
    trials: list[StoredTrial] = []
    best_s: list[float] = []
    state, begin_s = point.state, clock()
    for trial in _trials(search, point, limits, clock):
        trials.append(trial)
        best_s.append(search.best_s)
        state = search.state()
        if clock() - begin_s >= batch_s:
            yield Batch(tuple(trials), tuple(best_s), state)
            trials, best_s, begin_s = [], [], clock()
    if trials or search.ended is not None:
        yield Batch(tuple(trials), tuple(best_s), state, search.ended)


def _trials(search: CellSearch, point: Point, limits: Limits, clock: Clock) -> Iterator[StoredTrial]:
    """Yield one measurement after another, each between its result and the next question."""
    n, spent_s = len(point.trials), sum(trial.seconds for trial in point.trials)
    while limits.allow(n, spent_s):
        begin_s = clock()
        placement = search.ask(limits.up(begin_s - spent_s, clock))
        if placement is None:
            return
        result = search.case.evaluate(placement, search.calibration)
        search.tell(placement, result)
        trial = StoredTrial(n, placement, result, clock() - begin_s)
        yield trial
        n, spent_s = n + 1, spent_s + trial.seconds
