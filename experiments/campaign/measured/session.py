"""One session with a case's devices: trace the model, open the devices, and measure placements.

Raw times of different sessions are not comparable, because machines drift. So every session first measures the anchor,
the fastest of the devices alone, and then each placement beside it. It multiplies the placement's time by the anchor's
time in the case's first session divided by the anchor's time now (placer.measure.runner.Runner). The profile of the
first session is stored and never made again, because the searchers' questions depend on it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from experiments.campaign.measured.profiled import StoredProfile, plain_calibration
from experiments.campaign.open_case import AwayError, Told
from experiments.campaign.rows import to_plain
from experiments.jobs.search.finding import Progress
from experiments.jobs.search.job import Job, Workbench
from experiments.jobs.search.settings import SearchSettings
from experiments.jobs.search.side_by_side import SideBySide, side_by_side
from experiments.jobs.search.stages import TracedModel, profile_model, trace_model
from placer.devices.host.machine import MACHINE, node_name
from placer.errors import BadInputError, PlacerError
from placer.graph.mapping import Mapping
from placer.measure.store import OF_A_MOMENT, topology_key
from placer.result import Failed, Measured, Result, surely_beats
from search.problem.problem import Placement

if TYPE_CHECKING:
    from placer.devices.cluster import Devices

FINAL_REPEATS = 30
SINGLE_TRIES = 3  # of a device alone whose failure may pass
ANCHOR_GONE = "the fastest single device does not run the step any more"


@dataclass(frozen=True)
class Known:
    """The findings of the case's first session. told: the placement on each device alone, with its result. tries_again:
    whether the devices in `passing` are to be measured again.
    """

    profile: bytes
    told: Told
    tries_again: bool = False

    @property
    def passing(self) -> list[Placement]:
        """The placements on devices alone that failed for a reason that may have passed."""
        return [placement for placement, result in self.told if _may_pass(result)]

    @property
    def anchor(self) -> tuple[Placement, Measured]:
        """The fastest of the devices alone, with its result. Raises PlacerError if none ran."""
        ran = [(placement, result) for placement, result in self.told if isinstance(result, Measured)]
        if not ran:
            failed = {result.detail for _, result in self.told if isinstance(result, Failed)}
            raise PlacerError(f"no device can run the step alone: {'; '.join(sorted(failed)) or 'memory does not do'}.")
        return min(ran, key=lambda entry: entry[1].step_s)


class Session:
    """Open devices, and the step whose placements are measured on them."""

    def __init__(self, job: Job, profiled: StoredProfile, known: Known | None) -> None:
        """known: None in the case's first session. Raises AwayError if a device is lost or the anchor no longer runs,
        and PlacerError if no device alone ever ran.
        """
        self.job, self.profiled = job, profiled
        self.facts: dict[str, Any] | None = None  # those that this session found out
        self.known = known or self._first()
        self._anchor()
        if self.known.tries_again:
            self._try_again()

    def _first(self) -> Known:
        """Measure the devices alone, and keep the facts about the step in `facts`."""
        job = self.job
        job.progress.phase("measuring single devices")
        told = self._singles()
        self.facts = {
            "devices": list(job.topology.names),
            **self._facts_of(told),
            "untouched_s": job.untouched.step_s,
            "bound_s": job.prediction.bound_s(),
            "calibration": plain_calibration(job.prediction),
            "ops": len(job.captured.graph),
            "groups": len(job.groups.graph),
        }
        return Known(self.profiled.encoded(), told)

    def _singles(self) -> Told:
        """Measure the devices alone, several times if a failure may pass, because the result is stored: the best single
        device would be another one for ever. Raises AwayError if a device stays lost.
        """
        job = self.job
        job.measure_singles()
        for _ in range(SINGLE_TRIES - 1):
            last = {row.mapping: row.result for row in job.trials}
            for mapping in (mapping for mapping, result in last.items() if _may_pass(result)):
                job.prediction = replace(job.prediction, ran_out=())  # else it would be refused
                job.measure("single", mapping)
        job.calibrate()
        last = {row.mapping: row.result for row in job.trials}
        lost = [result for result in last.values() if isinstance(result, Failed) and result.reason == "device"]
        if lost:
            raise AwayError(lost[0].detail)
        return [(job.problem.placement(mapping), result) for mapping, result in last.items()]

    def _facts_of(self, told: Told) -> dict[str, Any]:
        """The facts about the devices alone."""
        names = self.job.topology.names
        alone = [(names[placement[0]], result) for placement, result in told if len(set(placement)) == 1]
        return {
            "singles": [[name, result.step_s if isinstance(result, Measured) else None] for name, result in alone],
            "told": [[list(placement), to_plain(result)] for placement, result in told],
        }

    def _try_again(self) -> None:
        """Measure the devices alone again that failed in an earlier session, for a reason that may have passed. If one
        runs now, this changes what is known; the `facts` are then those to be stored instead.
        """
        measured = {
            placement: self.job.runner.measure(self._op_mapping(self.profiled.units.devices(placement)))
            for placement in self.known.passing
        }
        ran = {placement: result for placement, result in measured.items() if isinstance(result, Measured)}
        if ran:
            told = [(placement, ran.get(placement, result)) for placement, result in self.known.told]
            self.facts = self._facts_of(told)
            self.known = replace(self.known, told=told)
            self._anchor()

    def _anchor(self) -> None:
        """Measure the anchor. After this, all times are scaled to the anchor's time in the first session."""
        placement, stored = self.known.anchor
        runner = self.job.runner
        runner.take_down()
        found = runner.measure(self._op_mapping(self.profiled.units.devices(placement)))
        if isinstance(found, Failed):
            raise AwayError(f"{ANCHOR_GONE}: {found.detail}")
        runner.set_anchor_s(stored.step_s)

    def _keep_anchor(self, failed: Failed | None = None) -> None:
        """Measure the anchor again if it was taken down, to make room for a mapping that did not take its place. Raises
        the errors of `measure`.

        failed: the failure of that mapping; after a lost device, the devices are opened again anyway.
        """
        if self.job.runner.anchor is None and (failed is None or failed.reason != "device"):
            self._anchor()

    def measure(
        self, devices: tuple[int, ...], calibration: dict[str, Any] | None, ran_out: Sequence[Failed]
    ) -> Result:
        """Measure a mapping of the groups, with its ops in the run order that is best by the calibrated prediction.

        ran_out: earlier failures of memory; the mapping is not held beside others if that needs as much again. Raises
        DeviceLostError if a device is lost, and AwayError if the anchor no longer runs, because then the failure says
        nothing about the mapping.
        """
        self.job.prediction = self.profiled.calibrated(calibration).warned(ran_out)
        self._keep_anchor()
        found = self.job.runner.measure(self._op_mapping(devices))
        if isinstance(found, Failed):
            self._keep_anchor(found)
        return found

    def final(
        self,
        best: tuple[int, ...] | None,
        single: tuple[int, ...] | None,
        calibration: dict[str, Any] | None,
        ran_out: Sequence[Failed],
    ) -> dict[str, Any] | Failed:
        """Measure two mappings of the groups side by side, and also the untouched step if this process has the devices.

        best: the best mapping found. single: the best device alone; the returned facts describe it unless the other
        mapping surely beats it. ran_out, and what is raised: as for `measure`.
        """
        self.job.prediction = self.profiled.calibrated(calibration).warned(ran_out)
        self._keep_anchor()
        tried = [self._mapping(devices) for devices in (single, best) if devices is not None]
        found = side_by_side(self.job, tried, FINAL_REPEATS, untouched=True)
        if tried[-1] in found.failed:  # not handed back as the single device: the next try may have room for it
            failed = found.failed[tried[-1]]
            self._keep_anchor(failed)
            return failed
        return _final_facts(found, None if single is None else self._mapping(single))

    def _mapping(self, devices: tuple[int, ...]) -> Mapping:
        return Mapping(self.job.groups.graph, self.job.topology, devices)

    def _op_mapping(self, devices: tuple[int, ...]) -> Mapping:
        return self.job.op_mapping(self._mapping(devices))


@contextmanager
def opened(settings: SearchSettings, known: Known | None, progress: Progress) -> Iterator[Session]:
    """Open a session whose devices are closed when the block ends.

    Raises BadInputError if the model or the devices are not those of `known`, AwayError if the devices cannot be opened
    now, and the errors of the stages of `placer search` (BadInputError and PlacerError).
    """
    traced = trace_model(settings, progress)
    profiled = None if known is None else StoredProfile.decoded(known.profile)
    if profiled is not None:
        _check_model(settings.model, traced, profiled)
    progress.phase("opening devices" if known else "opening devices, measuring links")
    with _open(settings, links=known is None) as devices:
        if profiled is None:
            prediction = profile_model(traced, devices, settings, progress)
            profiled = StoredProfile.of(prediction, topology_key(devices.topology), node_name())
        else:
            _check_devices(settings.devices, devices, profiled)
        begin_s = time.perf_counter()
        workbench = Workbench(settings=settings, devices=devices, begin_s=begin_s, progress=progress)
        job = Job(workbench, traced, profiled.prediction)
        with closing(job.runner):
            yield Session(job, profiled, known)


def _may_pass(result: Result) -> bool:
    """Whether a device that failed need not fail again."""
    return isinstance(result, Failed) and result.reason in OF_A_MOMENT


def _open(settings: SearchSettings, *, links: bool) -> Devices:
    from placer.devices.opening import open_devices

    try:
        return open_devices(settings.devices, include_local=settings.include_local, links=links, deadlines=True)
    except BadInputError:
        raise
    except PlacerError as error:
        raise AwayError(str(error)) from error


def _check_model(model: str, traced: TracedModel, profiled: StoredProfile) -> None:
    now, then = traced.captured.graph, profiled.fine
    if now.fingerprint != then.fingerprint:
        raise BadInputError(
            f"{model} is graph {now.fingerprint} ({len(now)} ops) now, and was {then.fingerprint} ({len(then)}); "
            "change it back, or name another store"
        )
    if now.content != then.content and None not in (now.content, then.content):
        raise BadInputError(
            f"{model} has the ops that it had, but other attributes, constants or functions; change it back, or name "
            "another store"
        )


def _check_devices(spec: str | None, devices: Devices, profiled: StoredProfile) -> None:
    if topology_key(devices.topology) != profiled.made_on:
        now, then = (", ".join(topology.names) for topology in (devices.topology, profiled.topology))
        if now != then:
            raise BadInputError(f"the devices {spec} are {now}, and were {then}; give those, or name another store")
        here, there = node_name(), profiled.machine
        if there and here != there:
            raise BadInputError(
                f"the devices {spec} are of {here}, and the case was begun on {there}; run it there, name another "
                f"store, or set {MACHINE}={there} if only a container's name has changed"
            )
        where = "of the machine where the case was begun, but their" if there else "of another machine, or its"
        raise BadInputError(
            f"the devices {spec} are {where} cores, hardware, TensorFlow, its settings or Placer have changed since "
            "the case was begun; run it as then, or name another store"
        )


def _final_facts(found: SideBySide, single: Mapping | None) -> dict[str, Any]:
    best = min(found.measured, key=lambda mapping: found.measured[mapping].step_s)
    alone = None if single is None else found.measured.get(single)
    if single is not None and alone is not None and not surely_beats(found.measured[best], alone):
        best = single
    ran = found.measured[best]
    return {
        "best_s": ran.step_s,
        "spread_s": ran.spread_s,
        "repeats": ran.repeats,
        "best_single_s": None if alone is None else alone.step_s,
        "single_spread_s": None if alone is None else alone.spread_s,
        "untouched_s": None if found.untouched is None else found.untouched.step_s,
        "single": best.is_single,
        "devices": list(best.devices),
    }
