"""The settings and the result of a comparison of searchers."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from experiments.jobs.search.finding import Trial, by_merit, step_s
from experiments.jobs.search.settings import SearchSettings
from placer.errors import BadInputError
from placer.graph.coarsen import Groups
from placer.graph.mapping import Mapping
from placer.graph.topology import Topology
from placer.result import Measured
from search.defaults import DEFAULT_SEARCHER
from search.session.registry import SEARCHERS


@dataclass(frozen=True)
class CompareSettings:
    """The settings of a comparison: which searchers compete, and on what."""

    # As for one search, but each searcher has `measurements` of its own, without the single devices; searchers: None =
    # all.
    search: SearchSettings
    peer_measurements: int | None = None  # of each searcher other than the default one; None = `measurements`
    # Measurements of one more search after the contest, with another seed. No searcher learns from it, and its fastest
    # mapping counts for the best known. 0 = no such search.
    longer: int = 0

    @property
    def searchers(self) -> tuple[str, ...]:
        """The searchers that compete, the default searcher first; single devices are measured anyway."""
        names = dict.fromkeys(self.search.searchers or (name for name in SEARCHERS if name != "single"))
        return tuple(sorted(names, key=lambda name: name != DEFAULT_SEARCHER))

    def check(self) -> None:
        """Raises BadInputError for what can be refused before anything is traced."""
        self.search.check()
        if self.peer_measurements is not None and self.peer_measurements < 1:
            raise BadInputError(f"--peer-measurements is {self.peer_measurements}; give at least 1.")
        if self.longer < 0:
            raise BadInputError(f"--longer is {self.longer}; give a number of measurements, or 0 for none.")

    def share(self, searcher: str) -> int:
        """The number of measurements that a searcher may have."""
        peers = self.peer_measurements
        return self.search.measurements if searcher == DEFAULT_SEARCHER or peers is None else peers


@dataclass(frozen=True)
class Standing:
    """The result of one searcher."""

    searcher: str
    trials: tuple[Trial, ...]  # in the order of asking, predicted when asked; a mapping of several is measured once
    asking_s: float
    # The time at which it had each trial's result, in seconds of its own asking and measuring. A mapping takes its
    # share of its race, even if another searcher asked for it first. The profile and single devices are not counted.
    at_s: tuple[float, ...]
    ended: str  # why it asked nothing more
    notes: tuple[str, ...]  # on its search
    final: Trial | None  # its fastest mapping among those that were measured side by side at the end


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison. All step times are scaled to the anchor's time (see Runner)."""

    model: str
    ops: int
    groups: Groups
    topology: Topology
    measured: tuple[Trial, ...]  # every mapping once, in the order of measuring, single devices first
    standings: tuple[Standing, ...]
    longer: Standing | None  # of the longer search, if there was one
    best: Trial  # measured side by side at the end, as best_single was
    best_single: Trial | None
    side_by_side_s: dict[Mapping, float]  # seconds of all that were measured side by side at the end
    untouched: Measured  # the step as TensorFlow runs it in this process with all its cores
    tf_default_s: float | None  # the same, measured at the end if this process has the topology's devices
    lower_bound_s: float
    settings: CompareSettings
    interrupted: bool
    seconds: float
    raced: bool = False  # whether all figures are those of races, because it ended before the end
    lost: str = ""  # the error that came before the end, in words, such as which devices were lost
    error: Exception | None = field(default=None, repr=False)  # the same, if it may be a bug or is bad input
    unkept: str = ""  # why some of it is not in the store
    notes: tuple[str, ...] = ()  # on the step, and what was not tried

    @property
    def singles(self) -> tuple[Trial, ...]:
        """The single devices, from which all searchers start."""
        return tuple(trial for trial in self.measured if trial.searcher == "single")

    def best_so_far_s(self, standing: Standing) -> list[float | None]:
        """The step time of the mapping that a searcher would deliver before its first and after each of its
        measurements; None while nothing ran.

        That mapping is the fastest of these: the winner of the races until then, mappings that were stopped early in
        them and measured again at the end, and the best single device. The last entry is the step time, measured at the
        end, of the mapping that the searcher delivers: its own or the best single device.
        """
        ends = [step_s(trial) for trial in (standing.final, self.best_single) if trial is not None]
        least_s = min(ends, default=self.best_known_s)
        best, again = by_merit(self.singles)[:1], list[Trial]()
        so_far = [self._figure_s(best, least_s)]
        for trial in standing.trials:
            best = by_merit([*best, trial])[:1]
            early = trial.measured is not None and trial.measured.stopped_early
            again += [trial] if early and trial.mapping in self.side_by_side_s else []
            so_far.append(self._figure_s([*best, *again], least_s))
        so_far[-1] = min(ends, default=so_far[-1])
        return [s if s < inf else None for s in so_far]

    def regret(self, standing: Standing) -> list[float | None]:
        """The best step time so far divided by the best known, minus 1."""
        known_s = self.best_known_s
        return [None if s is None else s / known_s - 1 for s in self.best_so_far_s(standing)]

    @property
    def best_known_s(self) -> float:
        """The shortest of all step times measured side by side at the end."""
        return min(self.side_by_side_s.values())

    def _figure_s(self, best: list[Trial], least_s: float) -> float:
        """The shortest step time of `best` and the best single device.

        A mapping that was not measured at the end counts with its race, but with at least `least_s`, the time of what
        the searcher delivers: a race is short, the luckiest of many looks too good, and it was beaten later.
        """
        raced = (self.side_by_side_s.get(trial.mapping) or max(step_s(trial), least_s) for trial in best)
        alone = () if self.best_single is None else (step_s(self.best_single),)
        return min((*raced, *alone), default=inf)
