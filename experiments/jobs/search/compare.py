"""Searchers compared on one model and budget: they take turns, and the fastest of each are measured side by side."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from experiments.jobs.interrupt import SIGNALS, Signals, heard, interruptible
from experiments.jobs.search.comparison import CompareSettings, Comparison, Standing
from experiments.jobs.search.early_end import unforeseen, why_lost
from experiments.jobs.search.finding import Progress, Trial, by_merit, fastest, leader, merit, step_s
from experiments.jobs.search.job import Job
from experiments.jobs.search.side_by_side import side_by_side
from placer.errors import PlacerError
from placer.graph.mapping import Mapping
from placer.measure.store import Store
from placer.result import Result
from search.defaults import BATCH
from search.problem.searcher import Stop, never
from search.session.prediction import Prediction
from search.session.session import SearchSession

RACE = 6  # mappings stepped side by side at most, besides the anchor
ROUNDS = 6  # a searcher asks its share in about this many rounds
FINAL_REPEATS = 12
TIMED = 3  # steps that a mapping which was stopped early must have taken to be measured again at the end
MARKS = (5, 10, 20)  # measurements after which a searcher's best mapping is measured at the end, too
ASKING_LIMIT_S = 60.0  # a searcher whose asking took longer, in total, is not asked again
LONGER_BY = "genetic"  # searcher of the longer search: the strongest that works differently from the default one
LONGER = f"{LONGER_BY}, longer"
ANOTHER_SEED = 1000  # added to the seed of the others for the longer search


def run_comparison(
    settings: CompareSettings,
    progress: Progress | None = None,
    store: Store | None = None,
    clock: Callable[[], float] = time.perf_counter,
    unfinished: Callable[[Comparison], object] = lambda _: None,
) -> Comparison:
    """Let searchers compete on real devices. Ctrl-C ends the rounds, and what was measured is compared side by side.
    If another signal or an error comes, it is compared by its races.

    unfinished: takes the comparison so far when this process may be ended. Raises BadInputError for a model, device or
    searcher that cannot be used, and KeyboardInterrupt for a signal before anything is measured, and for a second
    Ctrl-C. Raises other errors only before anything is measured.
    """
    settings.check()
    with heard() as signals, Job.opened(settings.search, progress or Progress(), store, clock) as job:
        found = _Comparing(settings, signals, unfinished, job).found()
        job.note_suspends()
        return replace(found, unkept=job.unkept, notes=(*job.notes, *job.ended))


@dataclass
class _Comparing:
    """A comparison whose devices are open."""

    settings: CompareSettings
    signals: Signals
    unfinished: Callable[[Comparison], object]
    job: Job
    contest: Contest | None = field(default=None, init=False)  # once the single devices were measured

    def found(self) -> Comparison:
        """Measure and compare. If an error or a signal comes, return what is known by then."""
        from placer.devices.workers.deadline import at_the_end

        with at_the_end(lambda lost: self.unfinished(self._so_far(lost))):
            found: Comparison | None = None
            lost, ended_by = "", None
            try:
                found = self._measured()
            except KeyboardInterrupt:
                if self.signals.insists or not self._knows():
                    raise
            except Exception as error:
                if not self._knows():
                    raise
                lost, ended_by = why_lost(error), None if self.signals.raised else unforeseen(error)
            self.signals.note(SIGNALS)  # so that no signal keeps the result from being handed back
            return found or replace(self._so_far(lost), error=ended_by)

    def _measured(self) -> Comparison:
        """Measure all. Ctrl-C is only noted meanwhile."""
        with interruptible() as pressed:
            self.job.measure_singles(over=pressed)
            self.job.leave_share()
            self.contest = Contest(self.job, self.settings, pressed)
            self.contest.run()
            return self.contest.finish()

    def _knows(self) -> bool:
        """Whether any mapping ran."""
        return fastest(self.job.trials) is not None

    def _so_far(self, lost: str) -> Comparison:
        """The comparison by the races; if no searcher was asked, that of the single devices. lost: why nothing more can
        be measured; "" if it can. Raises PlacerError if no mapping ran.
        """
        contest = self.contest or Contest(self.job, self.settings, self.signals.pressed)
        return contest.cut_short(lost)


@dataclass
class Patience:
    """Returns whether a searcher must answer with what it has: its contest is over, or its time for asking is up."""

    over: Stop
    clock: Callable[[], float]
    until_s: float = math.inf

    def __call__(self) -> bool:
        return self.over() or self.clock() > self.until_s


@dataclass(eq=False)
class Entrant:
    """One searcher of a contest, or the longer search after it."""

    name: str
    session: SearchSession
    prediction: Prediction  # calibrated by `known` if the searcher predicts
    known: list[Trial]  # the single devices and the searcher's own trials
    share: int  # measurements that it may have
    patience: Patience  # the one that its session checks
    trials: list[Trial] = field(default_factory=list)  # mappings that it asked for
    asking_s: float = 0.0
    measuring_s: float = 0.0
    at_s: list[float] = field(default_factory=list)  # as in Standing
    ended: str = ""  # why it is not asked again

    def asks(self, clock: Callable[[], float]) -> list[tuple[Mapping, float]]:
        """The next mappings, each with its predicted seconds."""
        begin_s = clock()
        self.patience.until_s = begin_s + ASKING_LIMIT_S - self.asking_s
        count = min(BATCH, -(-self.share // ROUNDS), self.share - len(self.trials))
        try:
            if self.trials and self.session.searcher.predicts:
                self.prediction = self.prediction.calibrated([(trial.mapping, trial.result) for trial in self.known])
                self.session.recalibrate(self.prediction.problem)
            asked = self.session.ask(count)
            self.ended = self.session.ended or ("" if asked or self.patience.over() else "it asked nothing.")
        except PlacerError as error:
            asked, self.ended = [], str(error)
        predicted = [self.prediction.step_s(mapping) for mapping in asked]
        self.asking_s += clock() - begin_s
        return list(zip(asked, predicted, strict=True))

    def takes(self, trial: Trial, took_s: float) -> None:
        """Take in the result of one of its mappings. took_s: the seconds that measuring it took."""
        self.measuring_s += took_s
        self.at_s.append(self.asking_s + self.measuring_s)
        self.trials.append(trial)
        self.known.append(trial)
        self.session.tell([(trial.mapping, trial.result)])
        if not self.ended and len(self.trials) >= self.share:
            self.ended = f"its {self.share} measurements were used up."
        if not self.ended and self.asking_s > ASKING_LIMIT_S:
            self.ended = f"its asking took {self.asking_s:.0f} s, over the limit of {ASKING_LIMIT_S:.0f} s."


class Contest:
    """A comparison under way, which begins when the single devices are measured."""

    def __init__(self, job: Job, settings: CompareSettings, pressed: Stop = never) -> None:
        """pressed: returns whether Ctrl-C was pressed."""
        self.job = job
        self.settings = settings
        self.pressed = pressed
        singles = job.trials
        self.entrants = [self._entrant(name, name, settings.share(name)) for name in settings.searchers]
        another = settings.search.seed + ANOTHER_SEED
        self.longer = [self._entrant(LONGER, LONGER_BY, settings.longer, another) for _ in range(settings.longer > 0)]
        self.known: dict[Mapping, Result] = {trial.mapping: trial.result for trial in singles}
        self.took_s = dict.fromkeys(self.known, 0.0)  # to measure each mapping; 0 for the common start
        self.counted = set(self.known)

    def _entrant(self, name: str, searcher: str, share: int, seed: int | None = None) -> Entrant:
        """An entrant that knows the results of the single devices."""
        patience = Patience(self.over, self.job.clock)
        session = self.job.session(searcher, seed, patience)
        session.tell((trial.mapping, trial.result) for trial in self.job.trials)
        return Entrant(name, session, self.job.prediction, list(self.job.trials), share, patience)

    def over(self) -> bool:
        """Whether time is up, or Ctrl-C was pressed."""
        return self.pressed() or self.job.time_is_up()

    def run(self) -> None:
        """Run rounds until all entrants have ended, or until `over()`."""
        for entrants in (self.entrants, self.longer):
            number = 0
            while any(not entrant.ended for entrant in entrants) and not self.over():
                self._expect()
                self.job.calibrate()  # placed steps run in the order that this predicts
                self._round(entrants, number)
                number += 1
            for entrant in entrants:
                entrant.ended = entrant.ended or ("interrupted." if self.pressed() else "the minutes were up.")

    def finish(self) -> Comparison:
        """Step the fastest of each searcher side by side, and return all that was found."""
        job = self.job
        job.progress.phase("measuring each searcher's fastest side by side")
        job.calibrate()
        finalists, first = self._finalists(), self._first()
        found = side_by_side(
            job, finalists, FINAL_REPEATS, at_once=RACE - 1, untouched=True, limit_s=job.final_limit_s(),
            known_s=[step_s(first[mapping]) for mapping in finalists],
        )  # fmt: skip
        job.progress.end()
        if not found.measured:
            raise PlacerError(f"no finalist of {job.settings.model} runs any more; run the comparison again.")
        again = {
            mapping: replace(first[mapping], result=result, stored=False, at_s=None)
            for mapping, result in found.measured.items()
        }
        compared = self._compared(again, min(again.values(), key=step_s))
        return replace(compared, tf_default_s=None if found.untouched is None else found.untouched.step_s)

    def cut_short(self, lost: str) -> Comparison:
        """What was found before an error or a signal came. All figures come from the races, in which each mapping ran
        beside the anchor. lost: the error in words; "" if a signal came.
        """
        self.job.progress.end()
        for entrant in [*self.entrants, *self.longer]:
            entrant.ended = entrant.ended or ("an error ended it." if lost else "interrupted.")
        first = self._first()
        ran = {mapping: first[mapping] for mapping in self._finalists()}
        # The short race of a mapping that was stopped early looks too good; it counts where there is nothing else.
        whole = {mapping: trial for mapping, trial in ran.items() if not merit(trial)[0]}
        compared = self._compared(whole or ran, by_merit(ran.values())[0])
        standings = tuple(
            standing if standing.final is not None else _standing(entrant, ran)
            for entrant, standing in zip(self.entrants, compared.standings, strict=True)
        )
        return replace(compared, standings=standings, lost=lost, raced=True, interrupted=not lost or self.pressed())

    def _first(self) -> dict[Mapping, Trial]:
        """The first trial of each mapping."""
        return {trial.mapping: trial for trial in reversed(self.job.trials)}

    def _compared(self, finalists: dict[Mapping, Trial], best: Trial) -> Comparison:
        """The comparison of these mappings."""
        job = self.job
        return Comparison(
            model=job.settings.model,
            ops=len(job.captured.graph),
            groups=job.groups,
            topology=job.topology,
            measured=tuple(job.trials),
            standings=tuple(_standing(entrant, finalists) for entrant in self.entrants),
            longer=next((_standing(entrant, finalists) for entrant in self.longer), None),
            best=best,
            best_single=fastest(trial for trial in finalists.values() if trial.mapping.is_single),
            side_by_side_s={mapping: step_s(trial) for mapping, trial in finalists.items()},
            untouched=job.untouched,
            tf_default_s=None,
            lower_bound_s=job.prediction.bound_s(),
            settings=self.settings,
            interrupted=self.pressed(),
            seconds=job.clock() - job.begin_s,
        )

    def _expect(self) -> None:
        """Report the largest number of measurements that may still result."""
        shares = (len(e.trials) if e.ended else e.share for e in [*self.entrants, *self.longer])
        self.job.progress.begin(sum(trial.searcher == "single" for trial in self.job.trials) + sum(shares))

    def _round(self, entrants: Sequence[Entrant], number: int) -> None:
        """Ask each searcher, race the new ones among its mappings, and tell it the results.

        A different searcher begins each round, so that the end of the time does not always hit the same one.
        """
        first = number % len(entrants)
        for entrant in [*entrants[first:], *entrants[:first]]:
            if entrant.ended or self.over():
                continue
            asked = entrant.asks(self.job.clock)
            self._race(entrant, [mapping for mapping, _ in asked if mapping not in self.known])
            for mapping, predicted_s in asked:
                if mapping in self.known:
                    trial = Trial(entrant.name, mapping, self.known[mapping], predicted_s)
                    entrant.takes(trial, self.took_s[mapping])
                    self._advance(trial)

    def _race(self, entrant: Entrant, mappings: Sequence[Mapping]) -> None:
        """Race the mappings of one searcher without those of others. A searcher alone would not meet the others, and
        mappings that a race drops early would seem slower than they are (docs/decisions/040-races-apart.md).
        """
        new = list(dict.fromkeys(mappings))
        for first in range(0, len(new), RACE):
            if self.over():
                return
            begin_s = self.job.clock()
            self.job.runner.forget_incumbent()
            trials = self.job.measure_all([(entrant.name, mapping) for mapping in new[first : first + RACE]])
            each_s = (self.job.clock() - begin_s) / len(trials)
            for trial in trials:
                self.known[trial.mapping], self.took_s[trial.mapping] = trial.result, each_s

    def _advance(self, trial: Trial) -> None:
        """Report a trial if another searcher had its mapping measured; for that searcher, `measure_all` reported it."""
        if trial.mapping in self.counted:
            self.job.progress.trial(trial, leader(self.job.trials))
        self.counted.add(trial.mapping)

    def _finalists(self) -> list[Mapping]:
        """The mappings to measure side by side at the end, each once: the best of all and the fastest single device;
        for each searcher its best, its fastest that was not stopped at once, and both of these after MARKS; and as many
        of the next best as the last round has room for.
        """
        ran, all_entrants = self.job.ranked(), [*self.entrants, *self.longer]
        singles = [trial for trial in ran if trial.mapping.is_single]
        trials = [ran[0], *singles[:1], *(trial for e in all_entrants for trial in by_merit(e.trials)[:1])]
        # A mapping that was stopped early in a strong race may still beat the winner of a weaker one.
        trials += [trial for e in all_entrants for trial in _fastest_timed(e.trials)]
        starts = [trial for trial in self.job.trials if trial.searcher == "single"]
        for until in (e.trials[:mark] for e in self.entrants for mark in MARKS):
            trials += [*by_merit([*starts, *until])[:1], *_fastest_timed(until)]
        chosen = list(dict.fromkeys(trial.mapping for trial in trials))
        room = -(len(chosen) - 1) % (RACE - 1)
        return [*chosen, *[trial.mapping for trial in ran if trial.mapping not in chosen][:room]]


def _fastest_timed(trials: Sequence[Trial]) -> list[Trial]:
    """The fastest trial that was not stopped at once; empty if all were."""
    timed = (trial for trial in trials if trial.measured is not None and trial.measured.repeats >= TIMED)
    return sorted(timed, key=step_s)[:1]


def _standing(entrant: Entrant, finalists: dict[Mapping, Trial]) -> Standing:
    best = fastest(finalists[trial.mapping] for trial in entrant.trials if trial.mapping in finalists)
    final = replace(best, searcher=entrant.name) if best is not None else None
    return Standing(
        entrant.name,
        tuple(entrant.trials),
        entrant.asking_s,
        tuple(entrant.at_s),
        entrant.ended,
        tuple(entrant.session.notes),
        final,
    )
