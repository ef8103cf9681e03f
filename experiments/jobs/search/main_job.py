"""The main job: trace a training step, profile it, search, measure, and hand back the fastest mapping."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from experiments.jobs.interrupt import SIGNALS, EndedError, Signals, heard, interruptible
from experiments.jobs.search.early_end import unforeseen, why_lost
from experiments.jobs.search.ending import cut_short, finish, with_trace
from experiments.jobs.search.finding import Finding, Progress, fastest
from experiments.jobs.search.job import Job
from experiments.jobs.search.settings import SearchSettings
from experiments.jobs.search.splitting import divided_job, measure_by_turns
from placer.errors import BadInputError
from placer.measure.store import Store

BEFORE_THE_END = "this was written before the finalists were measured side by side; what came after was lost."


def run_search(
    settings: SearchSettings,
    progress: Progress | None = None,
    store: Store | None = None,
    trace: bool = False,
    clock: Callable[[], float] = time.perf_counter,
    unfinished: Callable[[Finding], None] = lambda found: None,
) -> Finding:
    """Search the mappings of one model on real devices.

    The delivered mapping was measured side by side with the fastest single device, and is that device if no mapping
    beat it by more than two standard errors. If pins or memory leave no single device, the delivered mapping was
    measured side by side with the next fastest one. If an error comes after a mapping has run, the finding says which.
    If a signal ends the search (experiments.jobs.interrupt), the best mapping so far is handed back; it is the best by
    its race if the signal came after the searchers' questions, or was not Ctrl-C. Afterwards signals are only noted.
    Raises BadInputError for a model, device, pin, plan of splits or searcher that cannot be used, EndedError if a
    signal came before a mapping had run, and KeyboardInterrupt at a second Ctrl-C.
    """
    with heard() as signals:
        signals.note()
        try:
            with Job.opened(settings, progress or Progress(), store, clock) as job, ExitStack() as stack:
                return _Search(signals, stack, trace, unfinished, [job]).found()
        except KeyboardInterrupt:
            if signals.insists:
                raise
            raise EndedError(f"{signals.in_words} before a mapping had run, so nothing is handed back.") from None


@dataclass
class _Search:
    """A search whose devices are open."""

    signals: Signals
    stack: ExitStack  # closed before the devices
    trace: bool
    unfinished: Callable[[Finding], None]  # takes the finding so far when this process may be ended
    jobs: list[Job]  # of the whole step, and then of the divided one
    finding: Finding | None = field(default=None, init=False)  # after the finalists were measured side by side

    def found(self) -> Finding:
        """Search and return the finding. If an error or a signal comes, return what is known by then."""
        from placer.devices.workers.deadline import at_the_end

        with at_the_end(lambda lost: self.unfinished(self._so_far(lost))):
            try:
                self._measure()
            except KeyboardInterrupt:
                if self.signals.insists or not self._knows():
                    raise
                self.signals.note(SIGNALS)
                return self._so_far("")
            except Exception as error:
                if not self._knows() or (isinstance(error, BadInputError) and not self._has_asked()):
                    raise
                self.signals.note(SIGNALS)
                found = self._so_far(why_lost(error))
                ended_by = None if self.signals.raised else unforeseen(error)
                return replace(found, interrupted=self.signals.pressed(), error=ended_by)
            self.signals.note(SIGNALS)
            return self._so_far("")

    def _measure(self) -> None:
        """Measure until there is a `finding`. While searchers are asked, Ctrl-C is only noted."""
        from placer.devices.workers.deadline import waiting

        job = self.jobs[0]
        with interruptible() as pressed, waiting("mappings were searched", first=True, loose=True):
            job.measure_singles(job.settings.measurements, pressed)
            self.jobs += filter(None, [self.stack.enter_context(divided_job(job, pressed))])
            measure_by_turns(self.jobs, pressed)
        with waiting("the fastest mappings were compared", first=True, loose=True):
            if job.devices.addresses and job.devices.workers is None and self._knows():
                self.unfinished(cut_short(self.jobs, BEFORE_THE_END))  # a frozen remote worker may end this process
            self.finding = finish(self.jobs, interrupted=self.signals.pressed())
            if self.trace:
                self.finding = with_trace(self.finding, self.jobs)

    def _knows(self) -> bool:
        """Whether any mapping ran."""
        return any(fastest(job.trials) for job in self.jobs)

    def _has_asked(self) -> bool:
        """Whether any mapping of a searcher was measured."""
        return any(not trial.searcher.startswith("single") for job in self.jobs for trial in job.trials)

    def _so_far(self, lost: str) -> Finding:
        """The finding of the finalists side by side, or else of the races. lost: why nothing more can be measured; ""
        if it can.
        """
        if self.finding is None:
            return cut_short(self.jobs, lost)
        untraced = self.trace and self.finding.trace is None and self.signals.pressed()
        why = ["interrupted before the step was traced."] if untraced else []
        ended = (*self.finding.ended, *why)
        return replace(self.finding, lost=lost, interrupted=self.signals.pressed(), ended=ended)
