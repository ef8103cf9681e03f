"""A search under way: the profiled step on open devices, and its measurements so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from experiments import zoo
from experiments.jobs.search.finding import Progress, Trial, by_merit, fastest, leader
from experiments.jobs.search.settings import BASELINES, SearchSettings
from experiments.jobs.search.singles import left_out, single_placements
from experiments.jobs.search.stages import TracedModel, profile_model, trace_model
from placer.devices.host.suspends import Suspends, in_words
from placer.errors import PlacerError
from placer.graph.mapping import Mapping
from placer.measure.settings import RunnerSettings
from placer.measure.store import Store
from placer.number_format import mib
from placer.result import Failed, Measured, Result
from search.defaults import BATCH
from search.problem.problem import Problem
from search.problem.searcher import Stop, never
from search.session.prediction import Prediction
from search.session.refusals import Refusals, too_large
from search.session.session import SearchSession

if TYPE_CHECKING:  # TensorFlow is loaded when a search starts, not for --help
    from placer.devices.cluster import Devices
    from placer.measure.runner import Runner

SHARE = 0.5  # of --minutes that single devices, searchers and finalists each have in any case


@dataclass(frozen=True, kw_only=True)
class Workbench:
    """The settings, devices and tools that all jobs of one search share."""

    settings: SearchSettings
    devices: Devices
    begin_s: float  # when the search began, by `clock`
    progress: Progress = field(default_factory=Progress)
    store: Store | None = None
    clock: Callable[[], float] = time.perf_counter
    suspends: Suspends = field(default_factory=Suspends)  # of the machine, since the search began
    runner: RunnerSettings = field(default_factory=RunnerSettings)  # how mappings are measured


class Job:
    """Measures mappings of one profiled step, and corrects the predicted costs by them."""

    def __init__(
        self, workbench: Workbench, traced: TracedModel, profiled: Prediction, beside: Job | None = None
    ) -> None:
        """beside: an earlier job of the same step. Mappings are raced with its anchor, and its measurements count."""
        from placer.measure.runner import Runner

        self.workbench, self.traced, self.beside = workbench, traced, beside
        self.settings, self.progress, self.devices = workbench.settings, workbench.progress, workbench.devices
        self.store, self.clock, self.begin_s = workbench.store, workbench.clock, workbench.begin_s
        self.captured, self.inputs, self.untouched = traced.captured, traced.inputs, traced.untouched
        self.topology, self.groups = profiled.topology, profiled.groups
        self.prediction = profiled  # by the latest calibration; others may set another one of the same step
        if beside is not None:
            self.prediction = profiled.warned(trial.result for trial in beside.trials)
        self.runner: Runner = Runner(
            traced.captured, self.devices, traced.inputs, traced.references, workbench.runner, foresight=self,
            beside=None if beside is None else beside.runner,
        )  # fmt: skip
        self.trials: list[Trial] = []
        self.ended: list[str] = []
        self._refused = Refusals()  # mappings that were not measured, because memory lacked
        self._orders: dict[tuple[int, ...], Sequence[str]] = {}  # devices of the ops -> the order of their last set-up
        self.notes: list[str] = []  # on the step, and on how ops are divided
        if traced.diverged is not None and beside is None:
            self.notes.append(f"The loss is {traced.diverged}; times are right, the training is not.")
        if self.runner.template.staged and beside is None:
            self.notes.append("Its batch goes to GPUs through pinned memory, which is faster here.")
        if self.settings.operators is not None and profiled.groups.fine.source is not None and beside is None:
            self.notes.append(profiled.groups.fine.source)
        self.unkept = ""  # why results are no longer stored
        self.anchor_s: float | None = None if beside is None else beside.anchor_s
        self._anchor: str = "" if beside is None else beside._anchor  # the anchor's key in the store
        self._calibrated_by = 0  # number of trials
        self._expected = self.settings.measurements  # as reported, the job beside it included
        self._until_s = inf if self.settings.minutes is None else self.begin_s + 60 * self.settings.minutes
        if beside is None:
            self.progress.limit(self.time_left_s)
        self.note_suspends()

    @classmethod
    @contextmanager
    def opened(
        cls,
        settings: SearchSettings,
        progress: Progress,
        store: Store | None = None,
        clock: Callable[[], float] = time.perf_counter,
        devices: Devices | None = None,
        training: zoo.TrainingStep | None = None,
        runner: RunnerSettings | None = None,
    ) -> Iterator[Job]:
        """Open a job whose devices are closed when the block ends.

        devices: open devices to use instead of those in the settings; they stay open. training: a step to search
        instead of the model in the settings. runner: how mappings are measured; None = as usual. Raises BadInputError
        and PlacerError as the stages do.
        """
        begin_s, suspends = clock(), Suspends()
        traced = trace_model(settings, progress, training)
        from placer.devices.opening import open_devices

        progress.phase("opening devices, measuring links")
        own = (
            nullcontext(devices)
            if devices
            else open_devices(
                settings.devices, include_local=settings.include_local, deadlines=True, max_memory=settings.max_memory
            )
        )
        with own as used:
            profiled = profile_model(traced, used, settings, progress)
            workbench = Workbench(
                settings=settings, devices=used, begin_s=begin_s, progress=progress, store=store, clock=clock,
                suspends=suspends, runner=runner or RunnerSettings(),
            )  # fmt: skip
            job = cls(workbench, traced, profiled)
            with closing(job.runner):
                try:
                    yield job
                finally:
                    progress.end()  # otherwise a bar would leave the terminal without a cursor

    @property
    def problem(self) -> Problem:
        """The groups to place, by the latest calibration."""
        return self.prediction.problem

    def op_mapping(self, mapping: Mapping) -> Mapping:
        """The mapping of the captured ops that a mapping of the groups means."""
        return Mapping(self.captured.graph, self.topology, self.groups.expand(mapping))

    def has_room_beside(self) -> bool:
        """Whether the devices have memory for divided steps beside the steps that are kept for comparison."""
        kept = self.runner.kept
        return self.prediction.hold([*kept, *kept]) if kept else self.prediction.is_roomy_for(BATCH)

    def time_left_s(self) -> float:
        """Seconds until the settings' minutes are over; negative afterwards, infinity without a limit."""
        return self._until_s - self.clock() if self.beside is None else self.beside.time_left_s()

    def time_is_up(self) -> bool:
        """Whether the settings' minutes are over."""
        return self.time_left_s() < 0

    def final_limit_s(self) -> float:
        """Seconds after which the finalists take no further turn; infinity if `final_s` sets the number of turns."""
        share_s = SHARE * 60 * (self.settings.minutes or 0.0)
        return inf if self.settings.final_s is not None else max(self.time_left_s(), share_s)

    def leave_share(self) -> None:
        """Let at least SHARE of the minutes be left, however long the set-up took; with `final_s`, its end stays."""
        if self.settings.final_s is None:
            self._until_s = max(self._until_s, self.clock() + SHARE * 60 * (self.settings.minutes or 0.0))

    def measurements_left(self) -> int:
        """The number of the settings' measurements that are left, after those of this job and the job beside it."""
        made = len(self.trials) + (0 if self.beside is None else len(self.beside.trials))
        return max(0, self.settings.measurements - made)

    def measure_singles(self, most: int | None = None, over: Stop = never) -> None:
        """Measure each device with all ops that it can run, if it can hold them, and calibrate by the results.

        No further one is measured after `most` (None = all), nor after `over()`, nor once one has run and the minutes
        are over. `ended` then says which are missing.
        """
        if self.beside is None:
            self.leave_share()
            self.progress.begin(self.settings.measurements)
        placements, made = single_placements(self.problem, self.prediction, most, self.settings.minutes), 0
        for i, placement in enumerate(placements):
            mapping = self.problem.mapping(placement)
            lack = self.prediction.lack(mapping)
            if lack is not None:
                self.ended.append(f"single: not tried, because {lack}, as simulated.")
                self._refused.add(lack)
                continue
            if made and over():
                break
            if why := self._no_more_singles(made, most):
                if self.beside is None:
                    self.ended.append(left_out(self.topology, placements[i:], why))
                break
            self.measure("single", mapping)
            made += 1
        self.calibrate()

    def _no_more_singles(self, made: int, most: int | None) -> str:
        """Why no further single device is measured after `made`; "" if one is."""
        if most is not None and made >= most:
            return f"only {most} mappings may be measured (--measurements)"
        known = [*self.trials, *(self.beside.trials if self.beside else ())]
        return "the minutes were up" if fastest(known) is not None and self.time_is_up() else ""

    def measure_searchers(self, over: Stop = never, most: int | None = None) -> None:
        """Measure the mappings that each searcher asks for, up to its share, until `over()`: first those of all
        baselines, then one searcher after the other, each of which learns all results so far.

        most: mappings that may be measured; None = as many as are left.
        """
        shares = self.settings.shares(self.measurements_left() if most is None else most)
        self._measure_baselines([(name, share) for name, share in shares if name in BASELINES], over)
        others = [(name, share) for name, share in shares if name not in BASELINES]
        for i, (name, share) in enumerate(others):
            if most is None:  # else another job takes what these leave
                self._expect(sum(share for _, share in others[i:]))
            self._measure_searcher(name, share, over)

    def _expect(self, more: int) -> None:
        """Report that at most `more` mappings will still be measured, unless that is known."""
        expected = len(self.trials) + (0 if self.beside is None else len(self.beside.trials)) + more
        if expected != self._expected:
            self._expected = expected
            self.progress.begin(expected)

    def _measure_baselines(self, shares: Sequence[tuple[str, int]], over: Stop) -> None:
        """Race the mappings of all baselines together, because the baselines learn nothing from one another."""
        self.calibrate()
        asked: dict[Mapping, str] = {}
        for name, share in shares:
            session = self.session(name, over=over)
            session.tell((trial.mapping, trial.result) for trial in self.trials)
            for mapping in session.ask(share):
                asked.setdefault(mapping, name)
            self._note_refusals(session)
        pairs = [(name, mapping) for mapping, name in asked.items()]
        for first in range(0, len(pairs), BATCH):
            if self.time_is_up() or over():
                return
            self.measure_all(pairs[first : first + BATCH])

    def _measure_searcher(self, name: str, share: int, over: Stop) -> None:
        session, known = self.session(name, over=over), 0
        while share > 0 and not (self.time_is_up() or over()):
            self.calibrate()
            session.recalibrate(self.problem)
            session.tell((trial.mapping, trial.result) for trial in self.trials[known:])
            known = len(self.trials)
            batch = session.ask(min(share, BATCH))
            if over():  # the question may have been cut short
                break
            if session.ended:
                self.ended.append(session.ended)
            if not batch:
                break
            share -= len(self.measure_all([(name, mapping) for mapping in batch]))
        self.notes += [f"{name}, {note}" for note in session.notes]
        self._note_refusals(session)

    def session(self, searcher: str, seed: int | None = None, over: Stop = never) -> SearchSession:
        """A new session of the searcher, by the latest calibration. It knows no results yet, and asks for no mapping
        that lacks memory.

        seed: of its draws; None = the settings' seed. over: whether it must answer with what it has. It also must when
        the settings' minutes are over.
        """
        return SearchSession(
            searcher, self.problem, seed=self.settings.seed if seed is None else seed,
            stop=lambda: self.time_is_up() or over(), lack=lambda mapping: self.prediction.lack(mapping),
        )  # fmt: skip

    def order(self, op_mapping: Mapping) -> Sequence[str]:
        """The run order, by the latest calibration, for a mapping of the ops that is being set up. `measured_order`
        returns it later.
        """
        self._orders[op_mapping.devices] = order = self.prediction.order(op_mapping)
        return order

    def hold(self, op_mappings: Sequence[Mapping]) -> bool:
        """As `Prediction.hold`, by the latest calibration."""
        return self.prediction.hold(op_mappings)

    def peaks(self, op_mapping: Mapping) -> Sequence[float]:
        """As `Prediction.peaks`, by the latest calibration."""
        return self.prediction.peaks(op_mapping)

    def measured_order(self, op_mapping: Mapping) -> Sequence[str]:
        """The run order with which a mapping of the ops was last set up and measured, or else the current one."""
        return self._orders.get(op_mapping.devices) or self.prediction.order(op_mapping)

    def _note_refusals(self, session: SearchSession) -> None:
        if session.refused.nearest is not None:
            self.ended.append(session.refusals)
            self._refused.add(session.refused.nearest)

    def measure(self, searcher: str, mapping: Mapping) -> Trial:
        """`measure_all` for one mapping."""
        return self.measure_all([(searcher, mapping)])[0]

    def measure_all(self, asked: Sequence[tuple[str, Mapping]]) -> list[Trial]:
        """Race mappings of the groups, each with the name of the searcher that asked for it.

        A result in the store is used as it is, but the anchor is measured again in every session.
        """
        if self.anchor_s is None and len(asked) > 1:
            return [*self.measure_all(asked[:1]), *self.measure_all(asked[1:])]
        op_mappings = [self.op_mapping(mapping) for _, mapping in asked]
        predicted_s = [self.prediction.step_s(mapping) for _, mapping in asked]
        stored = [self._stored(mapping) for mapping in op_mappings]
        known = [found or self._too_large(mapping) for (_, mapping), found in zip(asked, stored, strict=True)]
        raced = iter(self.runner.race([m for m, result in zip(op_mappings, known, strict=True) if result is None]))
        results = [result or next(raced) for result in known]
        self._learn_memory(results)
        self.note_suspends()
        trials = []
        for i, ((searcher, mapping), result) in enumerate(zip(asked, results, strict=True)):
            if self.anchor_s is None and isinstance(result, Measured):
                self.anchor_s, self._anchor = result.step_s, Store.anchor_key(op_mappings[i])
            if self.store is not None and self.anchor_s and known[i] is None:
                self._keep(self.store, op_mappings[i], result, searcher)
            by = searcher if self.traced.plan is None else f"{searcher}, divided"
            at_s = self.clock() - self.begin_s
            trials.append(Trial(by, mapping, result, predicted_s[i], stored=stored[i] is not None, at_s=at_s))
            self.trials.append(trials[-1])
            self.progress.trial(trials[-1], leader([*self.trials, *(self.beside.trials if self.beside else ())]))
        return trials

    def _stored(self, op_mapping: Mapping) -> Result | None:
        """The stored result of a mapping of the captured ops, in this session's time; None if there is none. If the
        store cannot be read, the search goes on without it.
        """
        if self.store is None or self.anchor_s is None:
            return None
        try:
            return self.store.find(op_mapping, self.anchor_s, self.settings.schedule, self._anchor)
        except PlacerError as error:
            self._go_on_without_store(error)
            return None

    def _keep(self, store: Store, op_mapping: Mapping, result: Result, searcher: str) -> None:
        """Store the result of a mapping of the captured ops. If that fails, as on a full disk, the search goes on
        without a store, and what was measured is still handed back.
        """
        try:
            store.add(op_mapping, result, self.anchor_s or 0.0, searcher, self.settings.schedule, self._anchor)
        except PlacerError as error:
            self._go_on_without_store(error)

    def _go_on_without_store(self, error: PlacerError) -> None:
        self.store, self.unkept = None, f"{error} What was measured from then on is not in it."
        self.progress.phase(self.unkept)

    def note_suspends(self) -> None:
        """If this machine was suspended since the last call, report that and note it for the finding."""
        asleep_s = self.workbench.suspends.passed_s()
        if asleep_s:
            said = in_words(asleep_s)
            self.progress.phase(said)
            self.notes.append(f"{said[0].upper()}{said[1:]}")

    def _learn_memory(self, results: Sequence[Result]) -> None:
        """Learn at how many bytes a device ran out of memory, so that no later mapping asks it for as many."""
        before, self.prediction = dict(self.prediction.ran_out), self.prediction.warned(results)
        for device, failed_bytes in self.prediction.ran_out:
            if before.get(device) != failed_bytes:
                self.notes.append(
                    f"{device} ran out of memory; as simulated, it would have held {mib(failed_bytes)} at once. "
                    "After that, no mapping was asked that would hold as much there."
                )

    def _too_large(self, mapping: Mapping) -> Failed | None:
        """The failure of a mapping that lacks memory and so need not run; None if its memory is enough."""
        lack = self.prediction.lack(mapping)
        return None if lack is None else too_large(lack)

    def calibrate(self) -> None:
        """Correct the predicted costs by all that was measured so far."""
        if self._calibrated_by != len(self.trials):
            self.prediction = self.prediction.calibrated([(trial.mapping, trial.result) for trial in self.trials])
            self._calibrated_by = len(self.trials)

    def ranked(self) -> list[Trial]:
        """The trials that ran, the best first. Raises PlacerError if none ran."""
        ran = by_merit(self.trials)
        if not ran:
            failures = {trial.result.detail for trial in self.trials if isinstance(trial.result, Failed)}
            if not failures and self._refused.nearest is not None:
                none_fits = self._refused.none_fits(self.settings.model)
                raise PlacerError(
                    f"{none_fits}: add a device, take a smaller batch, or let a worker take more than an equal share "
                    "of what is free (--max-memory)."
                )
            raise PlacerError(f"no mapping of {self.settings.model} could be measured: {'; '.join(sorted(failures))}")
        return ran
