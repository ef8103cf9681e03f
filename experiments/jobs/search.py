"""The main job: trace a training step, profile it, search, measure, and hand back the mapping that the clock chose."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from experiments import zoo
from experiments.jobs.finding import Finding, Progress, Row, by_merit, fastest, step_s
from experiments.jobs.interrupt import interruptible
from experiments.jobs.side_by_side import in_turn, prepared
from placer.errors import BadInputError, PlacerError
from placer.graph.coarsen import coarsen
from placer.graph.mapping import Mapping
from placer.graph.pins import parse_pin, pinned
from placer.measure.store import Store
from placer.result import Failed, Measured
from search.problem.problem import Problem
from search.problem.searcher import Stop, never
from search.session.prediction import Prediction
from search.session.registry import SEARCHERS
from search.session.session import BATCH, SearchSession
from surrogate.simulate.run_order import run_order
from surrogate.simulate.timeline import Timeline

if TYPE_CHECKING:  # TensorFlow is loaded when a search starts, not for --help
    from placer.devices.cluster import Devices
    from placer.execute.rewrite import PlacedStep
    from placer.measure.runner import Runner
    from placer.trace.capture import Captured

BASELINES = ("expert", "heft", "donf", "random")
DEFAULT_SEARCHERS = (*BASELINES, "hybrid")
BASELINE_SHARE = 0.25  # of the measurements left after the single devices
FINAL_REPEATS = 30
FEWEST_REPEATS, MOST_REPEATS = 10, 200  # where the finalists may take a certain time
FINALISTS = 4
SWITCHES = 4


@dataclass(frozen=True)
class SearchSettings:
    """What to search, over what, and for how long.

    devices: as placer.devices.cluster.open_devices takes it. searchers: asked in this order; None = the
    default ones.
    measurements: how many mappings may be measured, single devices included. groups: how coarse the search is.
    pins: each 'PATTERN=DEVICE', see placer/graph/pins.py. traced, warm_up: steps traced on each device to profile
    it, and
    untraced ones before. finalists: mappings stepped side by side at the end, beside the best single device; final_s:
    seconds that this may take, None = as long as FINAL_REPEATS take.
    """

    model: str
    devices: str | None = None
    include_local: bool = False
    searchers: tuple[str, ...] | None = None
    measurements: int = 24
    minutes: float | None = None
    seed: int = 0
    batch: int | None = None
    groups: int = 192
    headroom: float = 0.1
    pins: tuple[str, ...] = ()
    traced: int = 5
    warm_up: int = 3
    finalists: int = FINALISTS
    final_s: float | None = None


@dataclass(frozen=True)
class Final:
    """What was measured side by side at the end: finalists, and TensorFlow's default where it competes."""

    rows: tuple[Row, ...]
    default: Measured | None
    switch_s: float | None

    @property
    def best(self) -> Row:
        """The fastest mapping."""
        return min(self.rows, key=step_s)

    @property
    def best_single(self) -> Row | None:
        """The fastest single device."""
        return min((row for row in self.rows if row.mapping.is_single), key=step_s, default=None)


def run_search(
    settings: SearchSettings,
    progress: Progress | None = None,
    store: Store | None = None,
    trace: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Finding:
    """Search the mappings of one model on real devices.

    The delivered mapping was measured side by side with the fastest single device, and is that one where
    nothing beat it; where pins or memory leave no single device, with the next fastest mapping. Ctrl-C ends the search
    with the best so far.
    Raises BadInputError for a model, device, pin or searcher that cannot be used.
    """
    with Job.opened(settings, progress or Progress(), store, clock) as job:
        job.measure_singles()
        with interruptible() as pressed:
            job.measure_searchers(pressed)
        return job.finish(trace, interrupted=pressed())


class Job:
    """One search under way: the step captured and profiled, the devices open, and what was measured so far."""

    def __init__(
        self,
        settings: SearchSettings,
        progress: Progress,
        store: Store | None,
        clock: Callable[[], float],
        stack: ExitStack,
        devices: Devices | None = None,
        training: zoo.TrainingStep | None = None,
    ) -> None:
        """Use `Job.opened`."""
        _check(settings)
        self.settings, self.progress, self.store, self.clock = settings, progress, store, clock
        self.begin_s = clock()
        from placer.devices.cluster import check_spec, open_devices, split
        from placer.measure.runner import Runner, measure_untouched
        from placer.profile.profiler import profile

        check_spec(settings.devices)
        split(settings.devices)  # before the model's variables are made
        self.captured, self.inputs = self._captured(training)
        progress.phase("timing the untouched step")
        self.untouched, references = measure_untouched(self.captured, self.inputs)
        progress.phase("opening devices, measuring links")
        self.devices: Devices = devices or stack.enter_context(
            open_devices(settings.devices, include_local=settings.include_local)
        )
        self.topology = self.devices.topology
        if len(self.topology) < 2:
            raise PlacerError(
                f"{self.topology.names[0]} is the only device here, so there is nothing to place; "
                "pass --workers 2 to start worker processes."
            )
        pins = [parse_pin(pin) for pin in settings.pins]
        pinned(self.captured.graph, pins, self.topology)  # refuses what no profile would mend
        progress.phase("profiling ops on each device")
        costly = profile(self.captured, self.devices, self.inputs, runs=settings.traced, warm_up=settings.warm_up)
        fine = pinned(costly, pins, self.topology)
        self.groups = coarsen(fine, settings.groups, self.topology)
        self.prediction = Prediction.profiled(self.groups, self.topology, settings.headroom)
        self.runner: Runner = Runner(self.captured, self.devices, self.inputs, references, order=self._order)
        stack.callback(self.runner.close)
        self.rows: list[Row] = []
        self.calibrated_by = 0
        self.ended: list[str] = []
        self.anchor_s: float | None = None

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
    ) -> Iterator[Job]:
        """A job whose devices are closed when the block ends.

        devices: open ones to use instead of those that the settings name; they stay open. training: a step to search
        instead of the model that the settings name.
        """
        with ExitStack() as stack:
            yield cls(settings, progress, store, clock, stack, devices, training)

    @property
    def problem(self) -> Problem:
        """The groups to place, by the latest calibration."""
        return self.prediction.problem

    def fine(self, mapping: Mapping) -> Mapping:
        """The captured ops where a mapping of the groups puts them."""
        return Mapping(self.captured.graph, self.topology, self.groups.expand(mapping))

    def measure_singles(self) -> None:
        """Every device with all that it can run, if it can hold that, and from them a first calibration."""
        self.progress.begin(self.settings.measurements)
        for placement in (*self.problem.singles(), *self.problem.nearly_singles()):
            self.measure("single", self.problem.mapping(placement))
        self.calibrate()

    def measure_searchers(self, over: Stop = never) -> None:
        """Ask each searcher its share of the measurements, until `over()`; all are told of everything."""
        left = max(0, self.settings.measurements - len(self.rows))
        for name, share in _shares(self.settings.searchers or DEFAULT_SEARCHERS, left):
            self.calibrate()
            session, told = self.session(name), 0
            while share > 0 and not (self._time_is_up() or over()):
                if session.searcher.predicts:
                    self.calibrate()
                    session.recalibrate(self.problem)
                session.tell((row.mapping, row.result) for row in self.rows[told:])
                told = len(self.rows)
                batch = session.ask(min(share, BATCH))
                if session.ended and name not in BASELINES:
                    self.ended.append(session.ended)
                if not batch:
                    break
                share -= len(self.measure_all([(name, mapping) for mapping in batch]))

    def session(self, searcher: str) -> SearchSession:
        """The searcher at work by the latest calibration, nothing told yet."""
        return SearchSession(searcher, self.problem, seed=self.settings.seed)

    def measure(self, searcher: str, mapping: Mapping) -> Row:
        """`measure_all` for one."""
        return self.measure_all([(searcher, mapping)])[0]

    def measure_all(self, asked: Sequence[tuple[str, Mapping]]) -> list[Row]:
        """Race mappings of the groups, named after who asked for them; an earlier session's results are taken as
        they are. The anchor is always measured anew.
        """
        if self.anchor_s is None and len(asked) > 1:
            return [*self.measure_all(asked[:1]), *self.measure_all(asked[1:])]
        fine = [self.fine(mapping) for _, mapping in asked]
        asked_s = [self.prediction.step_s(mapping) for _, mapping in asked]
        known = [self.store.find(m, self.anchor_s) if self.store and self.anchor_s else None for m in fine]
        raced = iter(self.runner.race([m for m, result in zip(fine, known, strict=True) if result is None]))
        rows = []
        for (searcher, mapping), placed, stored, predicted_s in zip(asked, fine, known, asked_s, strict=True):
            result = stored or next(raced)
            if self.anchor_s is None and isinstance(result, Measured):
                self.anchor_s = result.step_s
            if self.store is not None and self.anchor_s and stored is None:
                self.store.add(placed, result, self.anchor_s, searcher)
            rows.append(Row(searcher, mapping, result, stored=stored is not None, asked_s=predicted_s))
            self.rows.append(rows[-1])
            self.progress.row(rows[-1], fastest(self.rows))
        return rows

    def calibrate(self) -> None:
        """Correct the costs by what was measured so far; searches that begin from here on predict by them."""
        if self.calibrated_by != len(self.rows):
            self.prediction = self.prediction.calibrated([(row.mapping, row.result) for row in self.rows])
            self.calibrated_by = len(self.rows)

    def finish(self, trace: bool, interrupted: bool = False, beside: Sequence[Row] = ()) -> Finding:
        """The fastest, the fastest single device, and the untouched step where it competes, side by side.

        beside: rows measured before that shall be stepped beside these, too.
        """
        self.progress.phase("measuring the finalists side by side")
        self.calibrate()
        final = self._final(self._finalists(beside))
        self.progress.end()
        return Finding(
            model=self.settings.model,
            ops=len(self.captured.graph),
            topology=self.topology,
            problem=self.problem,
            groups=self.groups,
            measured=tuple(self._with_ratios()),
            best=final.best,
            best_single=final.best_single,
            untouched=self.untouched,
            tf_default_s=None if final.default is None else final.default.step_s,
            lower_bound_s=self.prediction.bound_s(),
            switch_s=final.switch_s,
            seed=self.settings.seed,
            interrupted=interrupted,
            ended=(*self.ended, *([f"interrupted after {len(self.rows)} measurements."] if interrupted else [])),
            seconds=self.clock() - self.begin_s,
            pins=self.settings.pins,
            trace=self._trace(final.best) if trace else None,
            finals=final.rows,
            tf_default=final.default,
        )

    def _captured(self, training: zoo.TrainingStep | None) -> tuple[Captured, list[Any]]:
        self.progress.phase(f"tracing {self.settings.model}")
        from placer.trace.capture import capture

        training = training or zoo.load(self.settings.model, batch=self.settings.batch, seed=self.settings.seed)
        captured = capture(training.step, training.example_inputs, training.name)
        return captured, captured.flat_inputs(training.example_inputs)

    def _order(self, mapping: Mapping) -> list[str]:
        """By the latest calibration."""
        return self.prediction.order(mapping)

    def _time_is_up(self) -> bool:
        minutes = self.settings.minutes
        return minutes is not None and self.clock() - self.begin_s > 60 * minutes

    def _final(self, finalists: Sequence[Row]) -> Final:
        """Measure the finalists again, with more repeats."""
        with prepared(self, [row.mapping for row in finalists]) as steps:
            rows = [row for row in finalists if row.mapping in steps]
            if not rows:
                raise PlacerError(f"no finalist of {self.settings.model} runs any more; run the search again.")
            found = in_turn(self, steps, self._final_repeats(rows), anchor=False, untouched=True)
            measured = [replace(row, result=found.measured[row.mapping]) for row in rows]
            single_s = min((step_s(row) for row in measured if row.mapping.is_single), default=None)
            switch_s = self._switched(steps[rows[0].mapping], rows) if len(rows) > 1 else None
        return Final(tuple(self._complete(row, single_s) for row in measured), found.untouched, switch_s)

    def _final_repeats(self, rows: Sequence[Row]) -> int:
        """How often the finalists are stepped in turn."""
        if self.settings.final_s is None:
            return FINAL_REPEATS
        turn_s = sum(map(step_s, rows)) + self.untouched.step_s
        return max(FEWEST_REPEATS, min(MOST_REPEATS, int(self.settings.final_s / turn_s)))

    def _switched(self, step: PlacedStep, rows: list[Row]) -> float:
        """Seconds of a switch from one finalist to another, the median of SWITCHES there and back."""
        seconds = []
        for i in range(SWITCHES):
            step, took_s = self.runner.switch(step, self.fine(rows[(i + 1) % 2].mapping))
            seconds.append(took_s)
        step.close()
        return median(seconds)

    def _finalists(self, beside: Sequence[Row]) -> list[Row]:
        measured = by_merit(self.rows)
        if not measured:
            failures = {row.result.detail for row in self.rows if isinstance(row.result, Failed)}
            raise PlacerError(f"no mapping of {self.settings.model} could be measured: {'; '.join(sorted(failures))}")
        singles = [row for row in measured if row.mapping.is_single][:1]
        finalists = [*singles, *[row for row in measured if row not in singles][: self.settings.finalists]]
        return [*finalists, *[row for row in beside if row not in finalists]]

    def _with_ratios(self) -> Iterator[Row]:
        single_s = min((step_s(row) for row in self.rows if row.mapping.is_single), default=None)
        for row in self.rows:
            yield self._complete(row, single_s)

    def _complete(self, row: Row, single_s: float | None) -> Row:
        """With what is predicted for it now, and how it compares to the best single device's seconds."""
        known = single_s is not None and single_s < float("inf") and isinstance(row.result, Measured)
        ratio = single_s / step_s(row) if known and single_s is not None else None
        return replace(row, predicted_s=self.prediction.step_s(row.mapping), ratio=ratio)

    def _trace(self, best: Row) -> tuple[Timeline, Timeline]:
        """The step under the best mapping as predicted, op by op, and as traced."""
        from experiments.jobs.timelines import measured_timeline
        from placer.profile.profiler import trace_steps

        mapping = self.fine(best.mapping)
        predicted = self.prediction.timeline(mapping)
        order = run_order(predicted)
        step = trace_steps(self.captured, self.devices, mapping.devices, self.inputs, runs=3, order=order)[-1]
        return predicted, measured_timeline(self.captured.graph, self.topology, mapping.devices, step)


def _check(settings: SearchSettings) -> None:
    for name in settings.searchers or ():
        if name not in SEARCHERS:
            raise BadInputError(f"there is no searcher {name!r}; choose one of {', '.join(sorted(SEARCHERS))}.")
    for pin in settings.pins:
        parse_pin(pin)
    if settings.measurements < 1:
        raise BadInputError(f"--measurements is {settings.measurements}; give at least 1.")
    if settings.groups < 2:
        raise BadInputError(f"--groups is {settings.groups}; give at least 2.")
    if settings.minutes is not None and not settings.minutes > 0:
        raise BadInputError(f"--minutes is {settings.minutes}; give a number > 0.")


def _shares(names: tuple[str, ...], left: int) -> list[tuple[str, int]]:
    """How many of the measurements left each searcher may ask for: the baselines a part, the others the rest."""
    baselines = [name for name in names if name in BASELINES]
    others = [name for name in names if name not in BASELINES]
    for_baselines = left if not others else int(left * BASELINE_SHARE) if baselines else 0
    shares = [(name, _part(for_baselines, i, len(baselines))) for i, name in enumerate(baselines)]
    return [*shares, *((name, _part(left - for_baselines, i, len(others))) for i, name in enumerate(others))]


def _part(total: int, i: int, parts: int) -> int:
    return total // parts + (i < total % parts)
