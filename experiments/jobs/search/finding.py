"""The results of a search, for each mapping and at its end, and the reports of its progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf

from placer.graph.coarsen import Groups
from placer.graph.mapping import Mapping
from placer.graph.topology import Topology
from placer.result import Measured, Result
from placer.splits.plan import SplitPlan
from search.problem.problem import Problem
from surrogate.simulate.timeline import Timeline


@dataclass(frozen=True)
class Trial:
    """One measured try of a mapping of the groups."""

    searcher: str
    mapping: Mapping
    result: Result
    predicted_s: float | None = None  # before it was measured
    ratio: float | None = None  # step of the best single device / this one, both in the anchor's time
    stored: bool = False  # whether an earlier session measured it
    replayed_s: float | None = None  # as predicted at the end, by a calibration that knows its result
    at_s: float | None = None  # when it was measured, in seconds since the search began

    @property
    def measured(self) -> Measured | None:
        """The result; None if the mapping failed."""
        return self.result if isinstance(self.result, Measured) else None


@dataclass(frozen=True)
class Pipelined:
    """The fastest mapping of the step in micro-batches, measured with `best`. load_s: the predicted seconds of the
    busiest device, the lower bound of a step.
    """

    micro_batches: int
    in_flight: int
    step_s: float
    load_s: float


@dataclass(frozen=True)
class Finding:
    """The result of a search. `finalists`, which include `best` and `best_single`, were measured side by side."""

    model: str
    ops: int
    topology: Topology
    problem: Problem
    groups: Groups
    measured: tuple[Trial, ...]  # during the search, in the order of measuring
    best: Trial
    best_single: Trial | None  # None if no single device can run it, or none that can was measured
    untouched: Measured  # the step as TensorFlow runs it in the coordinating process with all its cores
    tf_default: Measured | None  # the same, measured with the finalists if that process has the topology's devices
    lower_bound_s: float
    switch_s: float | None  # median seconds from leaving one finalist to the end of the first step under another
    seed: int
    seconds: float
    interrupted: bool = False
    ended: tuple[str, ...] = ()  # why the search used fewer measurements than it might have
    pins: tuple[str, ...] = ()  # which ops had to run on which device
    trace: tuple[Timeline, Timeline] | None = field(default=None, repr=False)  # the best step, predicted and measured
    before: Timeline | None = field(default=None, repr=False)  # the step on the best single device, as predicted
    after: Timeline | None = field(default=None, repr=False)  # the delivered step, as predicted
    order: tuple[str, ...] = ()  # ops of the delivered step, which run in this order if they share a device
    finalists: tuple[Trial, ...] = ()
    lost: str = ""  # the error that came before the end, in words, such as which devices were lost
    error: Exception | None = field(default=None, repr=False)  # the same, if it may be a bug or is bad input
    unkept: str = ""  # why some results are not in the store
    raced: bool = False  # whether the figures are those of the races, because the end was lost or cut short
    plan: SplitPlan | None = None  # by which ops of the delivered step are divided; then `groups` are of its parts
    whole: Trial | None = None  # if ops are divided: the fastest mapping of whole ops, measured with `best`
    notes: tuple[str, ...] = ()  # on the step, and on how ops were divided, delivered or not
    pipelined: Pipelined | None = None  # if micro-batches were tried, delivered or not

    @property
    def tf_default_s(self) -> float | None:
        """Seconds of `tf_default`."""
        return None if self.tf_default is None else self.tf_default.step_s

    @property
    def default_wins(self) -> bool:
        """Whether TensorFlow's own placement on the topology's devices is faster than the delivered mapping.

        Never if ops are pinned, because TensorFlow ignores pins.
        """
        return self.tf_default_s is not None and self.tf_default_s < step_s(self.best) and not self.pins

    @property
    def mapping(self) -> Mapping:
        """The delivered mapping, of the captured graph's ops."""
        return self.groups.expand_mapping(Mapping(self.groups.graph, self.topology, self.best.mapping.devices))


def step_s(trial: Trial) -> float:
    """Measured seconds of a step; infinity if the trial failed."""
    return trial.measured.step_s if trial.measured else inf


def fastest(trials: Iterable[Trial]) -> Trial | None:
    """The fastest of the trials that ran; None if none did."""
    return min((trial for trial in trials if trial.measured), key=step_s, default=None)


def by_merit(trials: Iterable[Trial]) -> list[Trial]:
    """The trials that ran: first those that took all their repeats, then those that were stopped early, by step time.

    The winner of a race was faster than the others side by side, while a median of three steps may be luck.
    """
    return sorted((trial for trial in trials if trial.measured), key=merit)


def leader(trials: Iterable[Trial]) -> Trial | None:
    """The first by merit among the trials that took all their repeats; None if none did."""
    return next((trial for trial in by_merit(trials) if not merit(trial)[0]), None)


def merit(trial: Trial) -> tuple[bool, float]:
    """The key by which `by_merit` sorts, the best first."""
    return bool(trial.measured and trial.measured.stopped_early), step_s(trial)


class Progress:
    """Receives what a search reports while it runs; this base class shows nothing."""

    def phase(self, text: str) -> None:
        """A new part of the job begins."""

    def limit(self, left_s: Callable[[], float]) -> None:
        """From now on, the work ends after `left_s()` seconds at the latest."""

    def begin(self, total: int) -> None:
        """`total` mappings may be measured in all; called again if there will be fewer."""

    def trial(self, trial: Trial, best: Trial | None) -> None:
        """One more mapping was measured; `best` is the fastest so far."""

    def turns(self, total: int) -> None:
        """Mappings are stepped in turn, `total` times at most."""

    def turn(self) -> None:
        """One more of these turns was taken."""

    def end(self) -> None:
        """Nothing more will be measured."""
