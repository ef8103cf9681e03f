"""A search that also divides ops: a plan of splits is chosen, and the step divided by it is searched, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from experiments.jobs.job import Job
from experiments.jobs.search_settings import SPLIT_AUTO, SPLIT_OFF
from experiments.jobs.stages import Traced, profile_model
from search.problem.searcher import Stop, never

if TYPE_CHECKING:  # TensorFlow is loaded when a search starts, not for --help
    from placer.splits.step import SplitStep

WORTH = 0.95  # a plan is tried where it promises at most this many times the whole step's best


def measure_whole_and_divided(job: Job, divided: Job | None, over: Stop = never) -> None:
    """Measure what searchers ask: for the whole step and the divided one by halves, or for the divided one alone where
    its plan was given.
    """
    if divided is None:
        job.measure_searchers(over)
        return
    left = job.settings.measurements - len(job.rows)
    if job.settings.split == SPLIT_AUTO:
        job.measure_searchers(over, len(job.rows) + left // 2)
    divided.measure_singles()
    divided.measure_searchers(over, len(divided.rows) + job.settings.measurements - len(job.rows))


@contextmanager
def divided_job(job: Job) -> Iterator[Job | None]:
    """The job of the same step with ops divided, profiled on the same devices; None where nothing is divided.

    Raises BadInputError where a plan that was given cannot be carried out.
    """
    step = _split_step(job)
    if step is None:
        yield None
        return
    job.progress.phase(f"profiling {len(step.captured.graph)} ops, {len(step.plan)} of them divided")
    traced = Traced(step.captured, job.inputs, job.untouched, job.references)
    profiled = profile_model(traced, job.devices, job.settings, job.progress)
    divided = Job(job.settings, traced, job.devices, profiled, job.progress, job.store, job.clock, job.begin_s)
    divided.plan = step.plan
    with closing(divided.runner):
        yield divided


def _split_step(job: Job) -> SplitStep | None:
    from placer.splits.plan_files import read_plan
    from placer.splits.step import split_step

    if job.settings.split == SPLIT_OFF:
        return None
    if job.settings.split != SPLIT_AUTO:
        return split_step(job.captured, read_plan(job.settings.split))
    return _chosen(job)


def _chosen(job: Job) -> SplitStep | None:
    """The most promising plan; None where none promises enough."""
    from search.splits.choose import Judge

    judge = Judge(job.captured, job.prediction, job.settings.groups, job.settings.seed)
    job.progress.phase("judging plans of splits")
    whole_s = judge.whole_s()
    found = judge.candidates(len(job.topology), lambda policy: job.progress.phase(f"judging splits: {policy}"))
    if not found or found[0].predicted_s > WORTH * whole_s:
        job.ended.append("no plan of splits promised a faster step than whole ops do.")
        return None
    return found[0].step
