"""The main job: trace a training step, profile it, search, measure, and hand back the fastest mapping."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median
from typing import TYPE_CHECKING

from experiments.jobs.finding import Finding, Progress, Row, fastest, step_s
from experiments.jobs.interrupt import interruptible
from experiments.jobs.job import Job
from experiments.jobs.search_settings import SearchSettings
from experiments.jobs.side_by_side import both_in_turn, in_turn, prepared
from experiments.jobs.splitting import divided_job, measure_whole_and_divided
from placer.errors import PlacerError
from placer.measure.store import Store
from placer.result import Measured
from surrogate.simulate.run_order import run_order
from surrogate.simulate.timeline import Timeline

if TYPE_CHECKING:  # TensorFlow is loaded when a search starts, not for --help
    from placer.execute.rewrite import PlacedStep

FINAL_REPEATS = 30
FEWEST_REPEATS, MOST_REPEATS = 10, 200  # where the finalists may take a certain time
SWITCHES = 4
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

    The delivered mapping was measured side by side with the fastest single device, and is that one where
    nothing beat it; where pins or memory leave no single device, with the next fastest mapping. Ctrl-C ends the search
    with the best so far.
    Raises BadInputError for a model, device, pin or searcher that cannot be used.
    """
    with Job.opened(settings, progress or Progress(), store, clock) as job:
        from placer.devices.workers.deadline import DeviceLostError, at_the_end, waiting

        with at_the_end(lambda lost: unfinished(cut_short(job, lost))):
            try:
                with waiting("mappings were searched", first=True, loose=True):
                    job.measure_singles()
                    with divided_job(job) as divided:
                        with interruptible() as pressed:
                            measure_whole_and_divided(job, divided, pressed)
                        if job.devices.addresses and job.devices.workers is None and fastest(job.rows):
                            unfinished(cut_short(job, BEFORE_THE_END))  # a worker elsewhere that freezes may end all
                        return finish(job, trace, interrupted=pressed(), divided=divided)
            except DeviceLostError as error:
                if fastest(job.rows) is None:
                    raise
                return cut_short(job, str(error))


def finish(
    job: Job,
    trace: bool = False,
    interrupted: bool = False,
    beside: Sequence[Row] = (),
    divided: Job | None = None,
) -> Finding:
    """Step the fastest mappings, the fastest single device, and the untouched step where it competes, side by side.

    trace: whether the best step is traced, too. beside: more rows of the job to step beside these. divided: the job of
    the same step with ops divided, whose fastest mappings are stepped with these. Raises PlacerError where no mapping
    runs.
    """
    job.progress.phase("measuring the finalists side by side")
    job.calibrate()
    found, winner = _found(job, _final(job, _finalists(job, beside))), job
    if divided is not None and fastest(divided.rows):
        found, winner = _faster(job, divided, found)
    job.progress.end()
    count = len(job.rows) + (len(divided.rows) if divided is not None else 0)
    ended = (*job.ended, *([f"interrupted after {count} measurements."] if interrupted else []))
    traced = _trace(winner, found.best) if trace else None
    return replace(found, interrupted=interrupted, ended=ended, trace=traced, seconds=job.clock() - job.begin_s)


def _faster(job: Job, divided: Job, whole: Finding) -> tuple[Finding, Job]:
    """The finding of the whole step or that of the divided one, with the fastest of both measured side by side."""
    divided.calibrate()
    parts = divided.ranked()[: job.settings.finalists]
    rows = [row for row in dict.fromkeys((whole.best_single, whole.best)) if row is not None]
    with prepared(job, [row.mapping for row in rows]) as steps, prepared(divided, [r.mapping for r in parts]) as others:
        ours, theirs = both_in_turn(job, steps, divided, others, _repeats(job, [*rows, *parts]))
    rows = [replace(row, result=ours.measured[row.mapping]) for row in rows if row.mapping in ours.measured]
    parts = [replace(row, result=theirs.measured[row.mapping]) for row in parts if row.mapping in theirs.measured]
    single = fastest(row for row in rows if row.mapping.is_single)
    beside = _Final(_compared(job, rows), ours.untouched, whole.switch_s)
    if not parts or (rows and min(map(step_s, parts)) >= min(map(step_s, rows))):
        slower = f"{1e3 * min(map(step_s, parts)):.1f} ms" if parts else "no step that runs"
        job.ended.append(f"dividing ops gave {slower}, so that they stay whole.")
        return (replace(_found(job, beside), finalists=whole.finalists), job) if rows else (whole, job)
    final = _Final(_compared(divided, parts, single), theirs.untouched, whole.switch_s)
    found = _found(divided, final)
    marked = [replace(row, searcher=f"{row.searcher}, divided") for row in divided.rows]
    measured = (*_compared(job, job.rows), *_compared(divided, marked, single))
    return replace(found, best_single=single, measured=measured, plan=divided.plan, whole=fastest(rows)), divided


def cut_short(job: Job, lost: str) -> Finding:
    """What is known where devices were lost: the best by the races, in which each ran beside the anchor.

    lost: which, and when. Raises PlacerError where no mapping ran.
    """
    job.progress.end()
    ran = job.ranked()
    rows = [ran[0], *[row for row in ran[1:] if row.mapping.is_single][:1]]
    found = _found(job, _Final(_compared(job, rows), None, None))
    return replace(found, best=found.finalists[0], finalists=(), ended=tuple(job.ended), lost=lost)


def _found(job: Job, final: _Final) -> Finding:
    """The finding of which the fastest of `final` is the best."""
    best = min(final.rows, key=step_s)
    return Finding(
        model=job.settings.model,
        ops=len(job.captured.graph),
        topology=job.topology,
        problem=job.problem,
        groups=job.groups,
        measured=_compared(job, job.rows),
        best=best,
        best_single=fastest(row for row in final.rows if row.mapping.is_single),
        untouched=job.untouched,
        tf_default_s=None if final.untouched is None else final.untouched.step_s,
        lower_bound_s=job.prediction.bound_s(),
        switch_s=final.switch_s,
        seed=job.settings.seed,
        seconds=job.clock() - job.begin_s,
        pins=job.settings.pins,
        finalists=final.rows,
        tf_default=final.untouched,
    )


@dataclass(frozen=True)
class _Final:
    """What was measured side by side at the end: finalists, and the untouched step where it competes."""

    rows: tuple[Row, ...]
    untouched: Measured | None
    switch_s: float | None


def _finalists(job: Job, beside: Sequence[Row]) -> list[Row]:
    """The fastest single device, the best others, and `beside`."""
    ran = job.ranked()
    singles = [row for row in ran if row.mapping.is_single][:1]
    finalists = [*singles, *[row for row in ran if row not in singles][: job.settings.finalists]]
    return [*finalists, *[row for row in beside if row not in finalists]]


def _final(job: Job, finalists: Sequence[Row]) -> _Final:
    """Measure the finalists again, with more repeats."""
    with prepared(job, [row.mapping for row in finalists]) as steps:
        rows = [row for row in finalists if row.mapping in steps]
        if not rows:
            raise PlacerError(f"no finalist of {job.settings.model} runs any more; run the search again.")
        found = in_turn(job, steps, _repeats(job, rows), anchor=False, untouched=True)
        switch_s = _switch_s(job, steps[rows[0].mapping], rows) if len(rows) > 1 else None
    measured = [replace(row, result=found.measured[row.mapping]) for row in rows]
    return _Final(_compared(job, measured), found.untouched, switch_s)


def _repeats(job: Job, rows: Sequence[Row]) -> int:
    """How often the finalists are stepped in turn."""
    if job.settings.final_s is None:
        return FINAL_REPEATS
    turn_s = sum(map(step_s, rows)) + job.untouched.step_s
    return max(FEWEST_REPEATS, min(MOST_REPEATS, int(job.settings.final_s / turn_s)))


def _switch_s(job: Job, step: PlacedStep, rows: Sequence[Row]) -> float:
    """Seconds of a switch between the first two finalists, the median of SWITCHES to and fro from `step`."""
    seconds = []
    for i in range(SWITCHES):
        step, took_s = job.runner.switch(step, job.fine(rows[(i + 1) % 2].mapping))
        seconds.append(took_s)
    step.close()
    return median(seconds)


def _compared(job: Job, rows: Sequence[Row], single: Row | None = None) -> tuple[Row, ...]:
    """Each with what is predicted for it now, and how much faster it is than the fastest single device: of them, or
    `single`.
    """
    singles = [row for row in rows if row.mapping.is_single] if single is None else [single]
    single_s = min(map(step_s, singles), default=inf)
    return tuple(
        replace(
            row,
            predicted_s=job.prediction.step_s(row.mapping),
            ratio=single_s / row.result.step_s if isinstance(row.result, Measured) and single_s < inf else None,
        )
        for row in rows
    )


def _trace(job: Job, best: Row) -> tuple[Timeline, Timeline]:
    """The step under the best mapping as predicted, op by op, and as traced."""
    from experiments.jobs.timelines import measured_timeline
    from placer.profile.profiler import trace_steps

    mapping = job.fine(best.mapping)
    predicted = job.prediction.timeline(mapping)
    order = run_order(predicted)
    step = trace_steps(job.captured, job.devices, mapping.devices, job.inputs, runs=3, order=order)[-1]
    return predicted, measured_timeline(job.captured.graph, job.topology, mapping.devices, step)
