"""The end of a search: the fastest mappings, whole and divided, are measured side by side and make the finding."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import inf
from statistics import median
from typing import TYPE_CHECKING

from experiments.jobs.search.finding import Finding, Pipelined, Trial, by_merit, fastest, merit, step_s
from experiments.jobs.search.job import Job
from experiments.jobs.search.side_by_side import announce, apart, prepared, stepped
from placer.errors import PlacerError
from placer.number_format import ms
from placer.result import Failed, Measured, surely_beats
from surrogate.simulate.timeline import Timeline

if TYPE_CHECKING:  # TensorFlow is loaded when a search starts, not for --help
    from placer.execute.rewrite import PlacedStep

FINAL_REPEATS = 30
FEWEST_REPEATS = 10  # after which a finalist that is clearly slower is left out
MOST_REPEATS = 200  # if the finalists are given a time in seconds
MOST_KEPT = 5  # steps that the runners of two jobs keep, plus one for a switch
APART = "The devices have no memory for the finalists at once: they were measured one after another, in several rounds."
SWITCHES, SWITCHES_S = 4, 4.0  # the most, and the seconds after which no more are made; at least two are


@dataclass(frozen=True)
class Finalist:
    """A mapping of a job's groups, and its result."""

    job: Job
    trial: Trial

    @property
    def divided(self) -> bool:
        """Whether ops of its step are divided."""
        return self.job.traced.plan is not None

    @property
    def single(self) -> bool:
        """Whether it is the whole step on one device."""
        return self.trial.mapping.is_single and not self.divided


@dataclass(frozen=True)
class Final:
    """The results side by side: finalists, and the untouched step if it competes."""

    finalists: tuple[Finalist, ...]
    untouched: Measured | None = None
    switch_s: float | None = None


def finish(jobs: Sequence[Job], interrupted: bool = False, beside: Sequence[Trial] = ()) -> Finding:
    """Step the fastest mappings, the fastest single device, and, if it competes, the untouched step side by side.

    jobs: of the whole step, and then that of the same step with ops divided if there is one; they share the number of
    finalists. interrupted: whether a signal ended the search. beside: more trials of the first job, to step beside
    these. Raises PlacerError if no mapping runs.
    """
    whole = jobs[0]
    whole.progress.phase("measuring the finalists side by side")
    for job in jobs:
        job.calibrate()
    final = _compare_finalists(jobs, beside)
    whole.progress.end()
    best = _delivered(final.finalists)
    found = _finding(jobs, final, best)
    ended = (*found.ended, *_beaten(final, best), *([f"{_interrupted(jobs)}."] if interrupted else []))
    notes = (*found.notes, *_in_doubt(final, best))
    return replace(found, interrupted=interrupted, ended=ended, notes=notes)


def with_trace(found: Finding, jobs: Sequence[Job]) -> Finding:
    """Return the finding of `finish` with the best step as predicted and as traced."""
    job = next(job for job in jobs if job.groups is found.groups)
    traced = _trace(Finalist(job, found.best))
    return replace(found, trace=traced, seconds=job.clock() - job.begin_s)


def cut_short(jobs: Sequence[Job], lost: str = "") -> Finding:
    """The finding if an error or a signal came: the best mapping by the races, in which each ran beside the
    anchor.

    jobs: as for `finish`. lost: the error in words; "" if a signal came. Raises PlacerError if no mapping ran.
    """
    jobs[0].progress.end()
    ran = [Finalist(job, trial) for job in _that_ran(jobs) for trial in job.ranked()]
    first = by_merit(finalist.trial for finalist in ran)[0]
    best = next(finalist for finalist in ran if finalist.trial is first)
    single = next((finalist for finalist in ran if finalist.single), best)
    found = _finding(jobs, Final(tuple(dict.fromkeys((best, single)))), best)
    why = [] if lost else [f"{_interrupted(jobs)}, before the fastest were measured side by side."]
    return replace(found, finalists=(), raced=True, lost=lost, interrupted=not lost, ended=(*found.ended, *why))


def _interrupted(jobs: Sequence[Job]) -> str:
    return f"interrupted after {sum(len(job.trials) for job in jobs)} measurements"


def _that_ran(jobs: Sequence[Job]) -> list[Job]:
    """The jobs of which a mapping ran; if there are none, the first job, whose `ranked` then says why."""
    return [job for job in jobs if fastest(job.trials)] or [jobs[0]]


def _fastest(finalists: Sequence[Finalist]) -> Finalist:
    """The fastest finalist among those that took all turns. The slower half drops out after the first turns, and the
    median of these turns does not compare with the median of all. Among equally fast finalists the first wins, so that
    ops are not divided for nothing.
    """
    return min(finalists, key=lambda finalist: merit(finalist.trial))


def _delivered(finalists: Sequence[Finalist]) -> Finalist:
    """The fastest finalist that is surely faster than the fastest single device; if there is none, that device, so that
    no step is spread over devices because of noise.
    """
    singles = [finalist for finalist in finalists if finalist.single]
    if not singles:
        return _fastest(finalists)
    single = _fastest(singles)
    return _fastest([single, *(finalist for finalist in finalists if _surely_beats(finalist.trial, single.trial))])


def _surely_beats(trial: Trial, single: Trial) -> bool:
    one, other = trial.measured, single.measured
    return one is not None and other is not None and surely_beats(one, other)


def _finalists(job: Job, count: int, beside: Sequence[Trial]) -> list[Trial]:
    """For a whole step, the fastest single device, the `count` best other trials, and `beside`; for a divided step, the
    `count` best trials.
    """
    ran = job.ranked()
    if job.traced.plan is not None:
        return ran[:count]
    singles = [trial for trial in ran if trial.mapping.is_single][:1]
    finalists = [*singles, *[trial for trial in ran if trial not in singles][:count]]
    return [*finalists, *[trial for trial in beside if trial not in finalists]]


def _compare_finalists(jobs: Sequence[Job], beside: Sequence[Trial]) -> Final:
    """Measure the finalists of all jobs again, in turn and with more repeats."""
    whole, ran = jobs[0], _that_ran(jobs)
    each = max(1, whole.settings.finalists // len(ran))
    trials_of = [_finalists(job, each, beside) for job in ran]
    all_trials = [trial for trials in trials_of for trial in trials]
    repeats, limit_s = _repeats(whole, all_trials), whole.final_limit_s()
    if not _fit_together(ran, trials_of):
        found = [Finalist(job, trial) for job, trials in zip(ran, trials_of, strict=True) for trial in trials]
        return _final_apart(found, repeats, limit_s)
    announce(whole, _turn_s(whole, all_trials), repeats, limit_s)
    whole.runner.join_anew_if_due()
    with ExitStack() as stack:
        ready: list[tuple[Finalist, PlacedStep]] = []
        for job, trials in zip(ran, trials_of, strict=True):
            steps, failed = stack.enter_context(prepared(job, [trial.mapping for trial in trials]))
            ready += [(Finalist(job, trial), steps[trial.mapping]) for trial in trials if trial.mapping in steps]
            job.notes += [_left_out(trial, failed[trial.mapping]) for trial in trials if trial.mapping in failed]
        if not ready:
            raise PlacerError(f"no finalist of {whole.settings.model} runs any more; run the search again.")
        kept = [step for finalist, step in ready if finalist.single or finalist.trial in beside]
        fewest = FEWEST_REPEATS if whole.settings.final_s is None else None
        results, untouched = stepped(
            whole, [step for _, step in ready], repeats, untouched=True, fewest=fewest, kept=kept, limit_s=limit_s
        )
        finalists = [
            Finalist(finalist.job, replace(finalist.trial, result=result))
            for (finalist, _), result in zip(ready, results, strict=True)
        ]
        best = _delivered(finalists)
        switch_s = _switch_s(best, ready[finalists.index(best)][1], finalists)
        return Final(tuple(finalists), untouched, switch_s)


def _left_out(trial: Trial, failed: Failed) -> str:
    """That a finalist was not measured with the others."""
    what = "A single device" if trial.mapping.is_single else f"A mapping of {trial.searcher}"
    took = f"which took {ms(step_s(trial))} a step in its race"
    return f"{what}, {took}, did not run at the end and is left out: {failed.detail.rstrip('.')}."


def _fit_together(ran: Sequence[Job], trials_of: Sequence[Sequence[Trial]]) -> bool:
    """Whether the devices have memory for all finalists at once, the steps that the runners keep, and a switch."""
    if len(ran) > 1:
        return all(job.prediction.is_roomy_for(sum(map(len, trials_of)) + MOST_KEPT) for job in ran)
    job, trials = ran[0], trials_of[0]
    finalists = [job.op_mapping(trial.mapping) for trial in trials]
    return job.prediction.hold([*job.runner.kept, *finalists, *finalists[:1]])


def _final_apart(finalists: Sequence[Finalist], repeats: int, limit_s: float) -> Final:
    """Measure finalists that the devices cannot hold together, one after another in several rounds."""
    job = finalists[0].job
    turn_s = _turn_s(job, [finalist.trial for finalist in finalists])
    pairs = [(finalist.job, finalist.trial.mapping) for finalist in finalists]
    found, untouched = apart(pairs, repeats, untouched=True, limit_s=limit_s, turn_s=turn_s)
    ran = [
        Finalist(finalist.job, replace(finalist.trial, result=result))
        for finalist, result in zip(finalists, found, strict=True)
        if isinstance(result, Measured)
    ]
    if not ran:
        why = "; ".join(dict.fromkeys(result.detail.rstrip(".") for result in found if isinstance(result, Failed)))
        raise PlacerError(f"no finalist of {job.settings.model} runs any more ({why}); run the search again.")
    job.notes.append(APART)
    of = zip(finalists, found, strict=True)
    job.notes += [_left_out(finalist.trial, result) for finalist, result in of if isinstance(result, Failed)]
    return Final(tuple(ran), untouched)


def _turn_s(job: Job, trials: Sequence[Trial]) -> float:
    """Seconds in which all finalists are stepped once, and the untouched step with them if it competes."""
    return sum(map(step_s, trials)) + (job.untouched.step_s if job.devices.has_local else 0.0)


def _repeats(job: Job, trials: Sequence[Trial]) -> int:
    """The number of times that each finalist is stepped in turn."""
    if job.settings.final_s is None:
        return FINAL_REPEATS
    turn_s = sum(map(step_s, trials)) + job.untouched.step_s
    return max(FEWEST_REPEATS, min(MOST_REPEATS, int(job.settings.final_s / turn_s)))


def _switch_s(best: Finalist, step: PlacedStep, finalists: Sequence[Finalist]) -> float | None:
    """The median seconds of a few switches back and forth between the best finalist and another one of its job; None if
    there is no other. step: that of the best finalist.
    """
    job = best.job
    other = next((finalist for finalist in finalists if finalist.job is job and finalist is not best), None)
    if other is None:
        return None
    seconds: list[float] = []
    while len(seconds) < 2 or (len(seconds) < SWITCHES and sum(seconds) < SWITCHES_S):
        step, took_s = job.runner.switch(step, job.op_mapping((other, best)[len(seconds) % 2].trial.mapping))
        seconds.append(took_s)
    step.close()
    return median(seconds)


def _finding(jobs: Sequence[Job], final: Final, best: Finalist) -> Finding:
    """The finding that delivers `best`, one of the finalists."""
    job = best.job
    jobs[0].note_suspends()
    single = min(
        (finalist for finalist in final.finalists if finalist.single), key=lambda f: step_s(f.trial), default=None
    )
    single_s = step_s(single.trial) if single else inf
    raced_s = min((step_s(trial) for trial in jobs[0].trials if trial.mapping.is_single), default=inf)
    trials = {finalist: _compared(finalist, single_s) for finalist in final.finalists}
    return Finding(
        model=job.settings.model,
        ops=len(job.captured.graph),
        topology=job.topology,
        problem=job.problem,
        groups=job.groups,
        measured=tuple(_compared(Finalist(each, trial), raced_s) for each in jobs for trial in each.trials),
        best=trials[best],
        best_single=fastest(trial for finalist, trial in trials.items() if finalist.single),
        untouched=job.untouched,
        tf_default=final.untouched,
        lower_bound_s=job.prediction.bound_s(),
        switch_s=final.switch_s,
        seed=job.settings.seed,
        seconds=job.clock() - job.begin_s,
        ended=tuple(dict.fromkeys(line for each in jobs for line in each.ended)),
        pins=job.settings.pins,
        finalists=tuple(trials.values()),
        plan=job.traced.plan,
        notes=tuple(line for each in jobs for line in (*each.notes, *_checked(each))),
        whole=min((r for f, r in trials.items() if best.divided and not f.divided), key=merit, default=None),
        unkept=next((each.unkept for each in jobs if each.unkept), ""),
        pipelined=_pipelined([finalist for finalist in final.finalists if finalist.divided]),
        before=_timeline(single) if single else None,
        after=_timeline(best),
        order=tuple(job.measured_order(job.op_mapping(best.trial.mapping))),
    )


def _timeline(finalist: Finalist) -> Timeline:
    """The finalist's step, op by op, as predicted."""
    return finalist.job.prediction.timeline(finalist.job.op_mapping(finalist.trial.mapping))


def _checked(job: Job) -> list[str]:
    """A line that says what the job's step was compared with, if it computes something else than the untouched step."""
    from placer.execute.local_agreement import LocalAgreement

    held = job.runner.check.agreement
    return [f"With --split-batchnorm local: {held.in_words}"] if isinstance(held, LocalAgreement) else []


def _pipelined(divided: Sequence[Finalist]) -> Pipelined | None:
    """The figures of the fastest divided finalist if their plan makes micro-batches; else None."""
    plan = divided[0].job.traced.plan if divided else None
    if plan is None or plan.in_flight is None or plan.micro_batches is None:
        return None
    best = _fastest(divided)
    load_s = best.job.problem.max_load.value(best.trial.mapping.devices)
    return Pipelined(plan.micro_batches, plan.in_flight, step_s(best.trial), load_s)


def _beaten(final: Final, best: Finalist) -> list[str]:
    """A line with the step time of divided ops, if whole ops were faster."""
    divided = [finalist for finalist in final.finalists if finalist.divided]
    if best.divided or not divided or _fastest(final.finalists).divided:
        return []
    divided_s = step_s(_fastest(divided).trial)
    return [f"dividing ops gave {1e3 * divided_s:.1f} ms, so that they stay whole."]


def _in_doubt(final: Final, best: Finalist) -> list[str]:
    """A line if a mapping was faster than the delivered one, but not surely faster than the best single device."""
    first = _fastest(final.finalists)
    if first is best:
        return []
    what = "the best single device" if best.single else "another mapping"
    took = f"{ms(step_s(first.trial))} against {ms(step_s(best.trial))}"
    return [f"One mapping took {took}, which may be noise: {what} is handed back."]


def _compared(finalist: Finalist, single_s: float) -> Trial:
    """The finalist's trial with its prediction at the end, and with its ratio to the fastest single device."""
    trial = finalist.trial
    return replace(
        trial,
        replayed_s=finalist.job.prediction.step_s(trial.mapping),
        ratio=single_s / trial.result.step_s if isinstance(trial.result, Measured) and single_s < inf else None,
    )


def _trace(best: Finalist) -> tuple[Timeline, Timeline]:
    """The step under the best mapping as predicted, op by op, and as traced."""
    from experiments.jobs.search.timelines import measured_timeline
    from placer.profile.traced_session import trace_steps

    job, mapping = best.job, best.job.op_mapping(best.trial.mapping)
    predicted = _timeline(best)
    order = job.measured_order(mapping)
    step = trace_steps(job.traced.for_sessions, job.devices, mapping.devices, job.inputs, runs=3, order=order)[-1]
    return predicted, measured_timeline(job.captured.graph, job.topology, mapping.devices, step)
