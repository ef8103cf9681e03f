"""Running a campaign: cell after cell, every measurement stored before the next one is asked for."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

from experiments.campaign.cell_search import CellSearch
from experiments.campaign.cells import MEASURED, MINUTES_UP, PREDICTED, Case, Cell
from experiments.campaign.open_case import AwayError, Calibration, CaseError, InterruptedOpeningError, OpenCase, Ready
from experiments.campaign.predicted import PredictedCase
from experiments.campaign.progress import CampaignProgress
from experiments.campaign.spec import Spec
from experiments.campaign.store import PROFILE, SHAPE, CampaignStore, Held, StoredTrial, WantedCell
from experiments.campaign.warm_start import (
    WARM,
    Source,
    carried_line,
    carried_placements,
    check_stores,
    read_sources,
    stored_shape,
    warm_start,
)
from placer.errors import BadInputError, PlacerError, listed, short
from placer.result import Failed, Measured, Result
from search.problem.problem import Placement
from search.problem.searcher import Stop, never

Clock = Callable[[], float]
SearchCells = Callable[[Sequence[Cell], dict[str, Held], Ready], None]
"""Searches cells until they are done or `over()`. Takes the cells, the stored cells by key, and what opens a case."""
DEVICE_RETRIES = 1  # at least, for a measurement that lost a device: the loss says nothing about the placement
PAUSES_S = (60.0, 120.0, 300.0, 600.0)  # before devices that went away are tried again; the last one repeats
POLL_S = 1.0  # between two checks whether Ctrl-C ended a pause


def open_case(case: Case, store: CampaignStore, progress: CampaignProgress, over: Stop = never) -> OpenCase:
    """Open the case, so that it can evaluate placements.

    Raises PlacerError if that fails, and InterruptedOpeningError if `over()` meanwhile.
    """
    if case.kind == MEASURED:
        from experiments.campaign.measured.case import MeasuredCase

        return MeasuredCase(case, store, progress, over)
    progress.phase(f"{case.key}: reading")
    try:
        return PredictedCase(case)
    except BadInputError as error:
        raise CaseError(str(error)) from error


@dataclass
class Campaign:
    """A campaign under way: its spec and store, and the failures in this run."""

    spec: Spec
    store: CampaignStore
    progress: CampaignProgress = field(default_factory=CampaignProgress)
    over: Stop = never
    clock: Clock = time.perf_counter
    opener: Callable[[Case, CampaignStore, CampaignProgress, Stop], OpenCase] = open_case
    search_files: SearchCells | None = None  # searches the cells of files first, instead of this process
    sleep: Callable[[float], None] = time.sleep
    in_a_row: int = 0
    seen: set[str] = field(default_factory=set)  # devices that were open in this run
    pauses_s: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """The pauses for these devices since the last measurement on them."""
    failures: Counter[tuple[str, object]] = field(default_factory=Counter)  # by cell and measurement, or "final"
    lost: list[str] = field(default_factory=list)  # cases and cells that could not be measured
    unusable: list[BadInputError] = field(default_factory=list)  # one for each case whose files cannot be used

    def run(self) -> None:
        """Search every cell to its end, or until `over()`. A case that cannot be opened is left out and listed in
        `lost`. If its devices were open earlier in this run, it first waits for them up to `spec.patience` minutes.

        Raises BadInputError if the spec contradicts what is stored, or if the files of no case can be used, and
        PlacerError if the store cannot be written, or if too many measurements fail in a row.
        """
        check(self.spec, self.store)
        self._check_warm_start()
        self.store.want(wanted(self.spec))
        held = {cell.key: cell for cell in self.store.held()}
        limits = self.spec.limits
        total = sum(
            len(cell.measured) if cell.is_searched(limits) else limits.measurements
            for cell in (held[cell.key] for cell in self.spec.cells)
        )
        self.progress.begin(sum(len(held[cell.key].measured) for cell in self.spec.cells), total)
        try:
            for case, cells in groupby(self._one_by_one(held), key=lambda cell: cell.case):
                of_case = list(cells)
                if self._left(of_case, held):
                    self._case(case, of_case, held)
        finally:
            self.progress.end()
        if self.unusable and len(self.unusable) == len({cell.case.key for cell in self.spec.cells}):
            raise self.unusable[0]

    def _left(self, cells: Sequence[Cell], held: dict[str, Held]) -> list[Cell]:
        """The cells that still have to be searched to their end, or then compared with their baselines."""
        return [c for c in cells if not held[c.key].is_searched(self.spec.limits) or held[c.key].lacks_final]

    def _one_by_one(self, held: dict[str, Held]) -> Sequence[Cell]:
        """Search the cells of files with `search_files`, if given. Return the cells to search one after another."""
        if self.search_files is None:
            return self.spec.cells
        files = [cell for cell in self.spec.cells if cell.case.kind == PREDICTED]
        self.search_files(
            [cell for cell in files if not held[cell.key].is_searched(self.spec.limits)], held, self._ready
        )
        return [cell for cell in self.spec.cells if cell.case.kind != PREDICTED]

    def _case(self, case: Case, cells: Sequence[Cell], held: dict[str, Held]) -> None:
        """Search the cells of a case. If its devices go away, wait for them and resume from what is stored."""
        while not self.over():
            try:
                self._searched(case, cells, held)
                return
            except InterruptedOpeningError:
                return
            except CaseError as error:
                if not (isinstance(error, AwayError) and self._waits(case, str(error))):
                    self._lose_case(case, error)
                    return
                held = {cell.key: cell for cell in self.store.held()}

    def _searched(self, case: Case, cells: Sequence[Cell], held: dict[str, Held]) -> None:
        with closing(self.opener(case, self.store, self.progress, self.over)) as opened:
            self.seen.add(case.where)
            facts = self.store.opened(case.key) or self._opened(case, opened)
            for cell in self._left(cells, held):
                if not self.over() and cell.key not in self.lost:
                    self._cell(cell, held[cell.key], opened, carried_placements(facts))

    def _waits(self, case: Case, why: str) -> bool:
        """Wait a while for a case's devices if they were open in this run; return whether to try them again."""
        pauses_s = self.pauses_s[case.where]
        left_s = 60.0 * self.spec.patience - sum(pauses_s)
        if case.where not in self.seen or left_s <= 0:
            return False
        pause_s = min(PAUSES_S[min(len(pauses_s), len(PAUSES_S) - 1)], left_s)
        pauses_s.append(pause_s)
        failed = Failed("device", f"{why}; tried again in {pause_s / 60:.1f} min")
        self.store.keep_failure(case.key, None, None, failed)
        self.progress.failed(case.key, failed.detail)
        until_s = self.clock() + pause_s
        while self.clock() < until_s and not self.over():
            self.sleep(POLL_S)
        return True

    def _ready(self, case: Case) -> tuple[OpenCase, Sequence[Placement]] | None:
        """Open a case of files and store the facts about it. Return the case and the placements carried over to its
        searches; None if its files cannot be used.
        """
        try:
            opened = self.opener(case, self.store, self.progress, self.over)
        except CaseError as error:
            self._lose_case(case, error)
            return None
        facts = self.store.opened(case.key) or self._opened(case, opened)
        return opened, carried_placements(facts)

    def _opened(self, case: Case, opened: OpenCase) -> dict[str, Any]:
        """Store and return the facts about a case before its first search, with what is carried over to it."""
        problem = opened.problem(None)
        facts = dict(opened.opened())
        if self.spec.warm_start:
            facts[WARM] = warm_start(problem, self._sources, [placement for placement, _ in opened.singles])
            self.progress.phase(f"{case.key}: {carried_line(facts[WARM])}")
        contents = {SHAPE: stored_shape(problem)} | ({} if opened.profile is None else {PROFILE: opened.profile})
        self.store.keep_opened(case.key, facts, contents)
        return facts

    @cached_property
    def _sources(self) -> list[Source]:
        return read_sources(self.spec.warm_start)

    def _check_warm_start(self) -> None:
        """Read the other campaigns if a case is still to be opened. Raises PlacerError if that fails."""
        cases = dict.fromkeys(cell.case.key for cell in self.spec.cells)
        if self.spec.warm_start and any(self.store.opened(case) is None for case in cases):
            check_stores([path for _, path in self.spec.warm_start], self.store.path)
            _ = self._sources

    def _cell(self, cell: Cell, held: Held, case: OpenCase, carried: Sequence[Placement]) -> None:
        """Make the rest of a cell's measurements, and then the final ones."""
        asked = [(trial.placement, trial.result) for trial in held.trials]
        search = CellSearch(cell, case, held.state, asked, self.over, carried, held.lacking)
        n, measured, spent_s = len(held.trials), len(held.measured), held.spent_s
        is_searched = held.is_searched(self.spec.limits)  # then `run` did not count more
        self.progress.cell(cell, measured, search.best_s, case.best_single_s)
        while held.ended is None and self.spec.limits.allow(measured, spent_s):
            begin_s = self.clock()
            placement = search.ask(self.spec.limits.up(begin_s - spent_s, self.clock))
            if self.over():  # the question may have been cut short
                return
            if placement is None:
                self.store.keep_end(cell.key, search.ended or "")
                self.progress.ended(cell, search.ended or "", self.spec.measurements - measured)
                break
            trial = self._trial(cell, n, search, placement, begin_s)
            if trial is None:
                return
            n, measured, spent_s = n + 1, measured + (not trial.refused), spent_s + trial.seconds
        if not self.over():
            if search.ended is None and measured < self.spec.measurements and not is_searched:
                self.progress.ended(cell, MINUTES_UP, self.spec.measurements - measured)
            self._final(cell, n, case, search)

    def _trial(
        self, cell: Cell, n: int, search: CellSearch, placement: Placement, begin_s: float
    ) -> StoredTrial | None:
        """Measure a placement that was asked for since `begin_s`, or refuse it, and store that; None if `over()` before
        there was a result.
        """
        refused, lost_s = search.refusal(placement), 0.0
        if refused is None:
            result, lost_s = self._evaluated(cell, n, search.case, placement, search.calibration)
        else:
            result = refused
        if result is None:
            return None
        search.tell(placement, result, refused is not None)
        seconds = max(0.0, self.clock() - begin_s - lost_s)
        trial = StoredTrial(n, placement, result, seconds, refused is not None)
        self.store.keep(cell.key, trial, search.state())
        search.case.learn(result)
        if refused is None:
            self.pauses_s.pop(cell.case.where, None)
            self.progress.trial(cell, trial, search.best_s)
            self._count(cell, result, search.case.clocked)
        return trial

    def _final(self, cell: Cell, n: int, case: OpenCase, search: CellSearch) -> None:
        """Measure the best placement side by side with the baselines, after `n` trials."""
        while True:
            final = case.final(search.finalist, search.calibration)
            if isinstance(final, Failed):
                if self._is_last(cell, "final", final):
                    self._lose(cell.case, cell, final)
                    break
                self._failed(cell, None, final)
                continue
            if final is not None:
                self.store.keep_final(cell.key, {**final, "n": n})
                self.pauses_s.pop(cell.case.where, None)
                self.progress.final(cell, final)
            break

    def _evaluated(
        self, cell: Cell, n: int, case: OpenCase, placement: Placement, calibration: Calibration
    ) -> tuple[Result | None, float]:
        """The result of a placement, and the seconds lost before it, by tries that failed and by opening lost devices
        again. A failure that may pass is tried again; the result is None if `over()` before such a retry.
        """
        begin_s = self.clock()
        while True:
            case.open_again()
            lost_s = self.clock() - begin_s
            result = case.evaluate(placement, calibration)
            if isinstance(result, Measured) or not case.clocked:
                return result, lost_s
            self._failed(cell, n, result)
            if self._is_last(cell, n, result):
                return result, lost_s
            if self.over():
                return None, lost_s

    def _is_last(self, cell: Cell, what: object, failed: Failed) -> bool:
        """Whether a measurement is not tried again after this failure. A failure counts even if the devices went away
        afterwards, because the placement may be the cause.
        """
        self.failures[cell.key, what] += 1
        retries = max(self.spec.retries, DEVICE_RETRIES if failed.reason == "device" else 0)
        return self.failures[cell.key, what] > retries

    def _failed(self, cell: Cell, n: int | None, failed: Failed) -> None:
        """Store a failure of a measurement, or of the final comparison (n: None)."""
        self.store.keep_failure(cell.case.key, cell.key, n, failed)
        self.progress.failed(cell.key, f"{failed.reason}: {failed.detail}")

    def _lose_case(self, case: Case, error: CaseError) -> None:
        if isinstance(error.__cause__, BadInputError):
            self.unusable.append(error.__cause__)
        self._lose(case, None, Failed("case", str(error)))

    def _lose(self, case: Case, cell: Cell | None, failed: Failed) -> None:
        """Store that a whole case, or the final measurement of a cell, failed."""
        what = case.key if cell is None else cell.key
        self.store.keep_failure(case.key, None if cell is None else cell.key, None, failed)
        self.progress.failed(what, failed.detail)
        if what not in self.lost:
            self.lost.append(what)

    def _count(self, cell: Cell, result: Result, clocked: bool) -> None:
        """Count the failures in a row. Raises PlacerError after `spec.stop_after` of them. A lack of memory is the
        placement's own, because the anchor ran beside or after it, and is no reason to give up.
        """
        if isinstance(result, Failed) and result.reason == "memory":
            return
        self.in_a_row = self.in_a_row + 1 if clocked and isinstance(result, Failed) else 0
        if isinstance(result, Failed) and self.in_a_row >= self.spec.stop_after:
            raise PlacerError(
                f"{self.in_a_row} measurements failed in a row, at last one of {cell.key}: {result.reason}, "
                f"{short(result.detail)}. All are in {self.store.path}; the same command goes on after them."
            )


def check(spec: Spec, store: CampaignStore) -> None:
    """Raises BadInputError if a case of the spec has other terms than the case stored under its name."""
    stored = store.terms()
    for case in dict.fromkeys(cell.case.key for cell in spec.cells):
        here = next(cell.case for cell in spec.cells if cell.case.key == case)
        differs = here.differences(stored[case]) if case in stored else []
        if differs:
            key, now, then = next((row for row in differs if row[0] == "warm_start"), differs[0])
            if key == "warm_start":
                raise BadInputError(
                    f"{spec.path}: {case} starts from {listed(now or ['no other campaign'])}, and from "
                    f"{listed(then or ['none'])} when {store.path} was begun: give the same warm_start, or name "
                    "another store."
                )
            what = (
                "is a file whose content has changed"
                if key in ("graphs", "topologies")
                else f"is {short(str(now))}, and was {short(str(then))}"
            )
            raise BadInputError(
                f"{spec.path}: {here.kind}.{key} of {case} {what} since {store.path} was begun; change it back, or "
                "name another store."
            )


def wanted(spec: Spec) -> list[WantedCell]:
    """The spec's cells, to be stored."""
    return [
        WantedCell(
            key=cell.key, case_key=cell.case.key, kind=cell.case.kind, terms=dict(cell.case.terms),
            searcher=cell.searcher, seed=cell.seed, measurements=spec.measurements, minutes=spec.minutes,
        )
        for cell in spec.cells
    ]  # fmt: skip
