"""Cases of models, measured on devices that a separate process opens; if that process ends, it is started again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

from experiments.campaign.cells import MEASURED, Case, located
from experiments.campaign.measured.process import FAILED, CaseProcess, ProcessError
from experiments.campaign.measured.profiled import StoredProfile, plain_calibration
from experiments.campaign.measured.session import Known
from experiments.campaign.open_case import AwayError, Calibration, CaseError, OpenCase, Told
from experiments.campaign.progress import CampaignProgress
from experiments.campaign.rows import ERRORS, from_plain
from experiments.campaign.store import PROFILE, CampaignStore
from experiments.jobs.search.settings import SearchSettings
from placer.errors import BadInputError
from placer.graph.held_memory import Lack
from placer.result import Failed, Measured, Result
from search.problem.problem import Placement, Problem
from search.problem.searcher import Stop, never

DEVICE: Final = "device"  # the reason of a failure that the placement did not cause
ASK_S, STEPS = 900.0, 1000  # an answer may take ASK_S plus STEPS steps of the anchor; after that the process is frozen


class MeasuredCase(OpenCase):
    """A case measured as `placer search` measures, one placement at a time beside the anchor (see measured.session)."""

    kind = MEASURED
    clocked = True

    def __init__(self, case: Case, store: CampaignStore, progress: CampaignProgress, over: Stop = never) -> None:
        """Opens the devices.

        Raises CaseError if the devices or the model cannot be used or are not those in the store; if that may pass,
        this error is an AwayError. Raises BadInputError if the store is damaged, and InterruptedOpeningError if
        `over()`.
        """
        self.case, self.progress, self.over = case, progress, over
        self._process: CaseProcess | None = None
        facts, profile = store.opened(case.key), store.content(case.key, PROFILE)
        is_begun = facts is not None and profile is not None
        if facts is None or profile is None:
            process = self._running(None)
            assert process.found is not None
            facts, profile = process.found, process.profile
        self._facts, self.profile = facts, profile
        self._known = Known(profile, self._told(store))
        if is_begun:
            changed = self._opened_again()
            if changed is not None:
                self._facts = {**facts, **changed}
                store.keep_opened(case.key, self._facts)
                self._known = Known(profile, self._told(store))
        self._ran_out: tuple[Failed, ...] = ()  # failures that say with how many bytes a device ran out of memory
        for result in (*(result for _, result in self.singles), *_measured(store, case)):
            self.learn(result)

    def _opened_again(self) -> dict[str, Any] | None:
        """Start a process that measures the devices again that failed, and return the facts that this changed, or None.
        If such a device ends the process, as it may have before, start one that measures none of them. Raises CaseError
        and InterruptedOpeningError.
        """
        if self._known.passing:
            with suppress(AwayError):
                return self._running(replace(self._known, tries_again=True)).found
        return self._running(self._known).found

    def _told(self, store: CampaignStore) -> Told:
        """The devices alone with their results, from the facts. Raises BadInputError."""
        try:
            return [(tuple(placement), from_plain(data)) for placement, data in self._facts["told"]]
        except ERRORS as error:
            raise BadInputError(
                f"the store {store.path} has a row of cases that no campaign wrote ({self.case.key}: {error}); name "
                "another."
            ) from error

    def opened(self) -> dict[str, Any]:
        """The facts of the first session: devices, times on single devices, the bound, the untouched step's time."""
        return self._facts

    @property
    def singles(self) -> Told:
        """The placement on each device alone, or nearly alone if it cannot run some op, with its result."""
        return self._known.told

    @property
    def bound_s(self) -> float:
        """Lower bound of the predicted seconds of any placement, by the first calibration."""
        return float(self._facts["bound_s"])

    @cached_property
    def profiled(self) -> StoredProfile:
        """The stored profile of the step, which is the same in every session."""
        assert self.profile is not None
        return StoredProfile.decoded(self.profile)

    def problem(self, calibration: Calibration) -> Problem:
        """The groups to place, with costs corrected by `calibration`."""
        return self.profiled.calibrated(calibration).problem

    def calibrated(self, told: Told, calibration: Calibration) -> Calibration:
        """Corrections of the profiled costs, fitted to everything that was measured."""
        return plain_calibration(self.profiled.recalibrated(list(told), calibration))

    def lack(self, placement: Placement, calibration: Calibration) -> Lack | None:
        """The memory that the placement lacks as simulated; None if it fits. As in `placer search`, a device on which
        memory ran out must hold less than then.
        """
        prediction = self.profiled.calibrated(calibration).warned(self._ran_out)
        return prediction.lack(self.profiled.units.mapping(placement))

    def learn(self, result: Result) -> None:
        """Learn with how many bytes a device ran out of memory, for all searches of the case."""
        if isinstance(result, Failed) and result.wanted_bytes > 0:
            self._ran_out = (*self._ran_out, result)

    def open_again(self) -> None:
        """Open the devices again if they, or the process, were lost. Raises CaseError and InterruptedOpeningError."""
        self._running(self._known)

    def evaluate(self, placement: Placement, calibration: Calibration) -> Result:
        """Measure the step time beside the anchor. A lost device or process is a failure, too; the next call opens the
        devices again.

        Raises CaseError if they cannot be opened, and InterruptedOpeningError.
        """
        found: Result = self._asked("measure", self._devices(placement), calibration, self._ran_out)
        return found

    def final(self, best: Placement | None, calibration: Calibration) -> dict[str, Any] | Failed:
        """Measure `best`, the best single device and, if it competes, the untouched step side by side."""
        alone = [(place, result) for place, result in self.singles if len(set(place)) == 1]
        ran = [(result.step_s, place) for place, result in alone if isinstance(result, Measured)]
        single = self._devices(min(ran)[1]) if ran else None
        other = None if best is None else self._devices(best)
        found: dict[str, Any] | Failed = self._asked("final", other, single, calibration, self._ran_out)
        return found

    def close(self) -> None:
        """End the process and the workers that it started."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def _devices(self, placement: Placement) -> tuple[int, ...]:
        return self.profiled.units.devices(placement)

    def _asked(self, method: str, *arguments: Any) -> Any:
        process = self._running(self._known)
        try:
            found = process.ask(method, *arguments, limit_s=ASK_S + STEPS * self._known.anchor[1].step_s)
        except ProcessError as error:
            found = Failed("error" if error.reason == FAILED else DEVICE, str(error))
            self.close()
        except BaseException:  # the process is amid a measurement, whose answer is not needed
            process.close(at_once=True)
            raise
        if isinstance(found, Failed) and found.reason == DEVICE:
            self.close()
        return found

    def _running(self, known: Known | None) -> CaseProcess:
        """The process; it is started if none is running."""
        if self._process is None:
            try:
                self._process = CaseProcess(
                    settings_of(self.case),
                    known,
                    lambda text: self.progress.phase(f"{self.case.key}: {text}"),
                    self.over,
                )
            except ProcessError as error:
                kind = CaseError if error.reason == FAILED else AwayError
                raise kind(f"cannot be opened: {error}") from None
        return self._process


def _measured(store: CampaignStore, case: Case) -> Iterator[Result]:
    """Yield the stored results of all searches of the case."""
    cells = (held for held in store.held() if held.case_key == case.key)
    return (trial.result for held in cells for trial in held.measured)


def settings_of(case: Case) -> SearchSettings:
    """The settings of `placer search` for the case; file names are relative to the spec's folder."""
    terms = case.terms
    return SearchSettings(
        model=located(case.folder, case.what),
        devices=located(case.folder, case.where),
        include_local=terms["include_local"],
        seed=terms["seed"],
        batch=terms["batch"],
        groups=terms["groups"],
        pins=tuple(terms["pins"]),
    )
