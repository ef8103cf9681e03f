"""A search that also divides ops: a plan of splits is chosen, and the step divided by it is searched, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from experiments.jobs.search.job import Job
from experiments.jobs.search.stages import profile_model
from placer.splits.plan_files import SPLIT_AUTO, SPLIT_OFF
from search.problem.searcher import Stop, never
from search.session.prediction import Prediction

if TYPE_CHECKING:  # TensorFlow is loaded when a search starts, not for --help
    from placer.splits.plan import SplitPlan
    from placer.splits.step import SplitStep
    from placer.splits.step_graph import StepGraph
    from search.splits.choose import Judge

NEEDED = (
    "Micro-batches need each other here (batch normalisation, or an op between divided ones that stays whole), so that "
    "all of them are under way at once. Batch normalisation does not with --split-batchnorm local."
)
NO_TIME = "no ops were divided, because judging plans of splits took until the time was up."
NO_ROOM = "ops stay whole, because the devices have no memory to measure divided steps beside whole ones."


class DividedStep(NamedTuple):
    """The step divided by a plan that the user gave or a policy made."""

    step: SplitStep
    policy: str | None  # None if the user gave the plan


def measure_by_turns(jobs: Sequence[Job], over: Stop = never) -> None:
    """Measure the mappings that searchers ask for, first of the whole step, then of the divided step if there is one.

    If Placer chose the plan, each step has half of the measurements and of the time that are left. If the plan was
    given, the divided step has all.
    """
    whole = jobs[0]
    whole.leave_share()
    if len(jobs) == 1:
        whole.measure_searchers(over)
        return
    if whole.settings.split == SPLIT_AUTO:
        later_s = whole.time_left_s() / 2
        half_over = over if later_s == inf else lambda: over() or whole.time_left_s() < later_s
        whole.measure_searchers(half_over, whole.measurements_left() // 2)
    divided = jobs[1]
    if over() or divided.time_is_up():
        why = "the search was interrupted" if over() else "the time was up"
        divided.ended.append(f"nothing was measured with ops divided, because {why}.")
        return
    divided.measure_singles(divided.measurements_left() - 1, over)
    divided.measure_searchers(over)


@contextmanager
def divided_job(job: Job, over: Stop = never) -> Iterator[Job | None]:
    """The job of the same step with ops divided, profiled on the same devices; None if nothing is divided.

    If Placer chooses the plan, an error with it is only noted, and the search goes on with whole ops. Raises
    BadInputError if a plan that was given cannot be carried out.
    """
    with ExitStack() as stack:
        divided = _tried(job, over) if job.settings.split == SPLIT_AUTO else _divided(job, over)
        if divided is not None:
            stack.enter_context(closing(divided.runner))
        yield divided


def _tried(job: Job, over: Stop) -> Job | None:
    from placer.devices.workers.deadline import DeviceLostError
    from search.splits.choose import failed_in_words

    try:
        return _divided(job, over)
    except DeviceLostError:
        raise
    except Exception as error:  # dividing is an offer: the user did not ask for this plan
        job.ended.append(failed_in_words(error))
        return None


def _divided(job: Job, over: Stop) -> Job | None:
    chosen = None if over() else _chosen(job, over)
    if chosen is None or over():
        return None
    if job.time_is_up():
        job.ended.append(NO_TIME)
        return None
    if not job.has_room_beside():
        if job.settings.split == SPLIT_AUTO:
            job.ended.append(NO_ROOM)
            return None
        job.runner.take_down()
    step = chosen.step
    by = "as asked for" if chosen.policy is None else chosen.policy
    job.progress.phase(f"dividing {len(step.plan)} ops, which makes {len(step.captured.graph)} ({by})")
    traced = replace(job.traced, captured=step.captured, plan=step.plan, policy=chosen.policy)
    profiled = profile_model(traced, job.devices, job.settings, job.progress)
    workbench = replace(job.workbench, store=job.store)  # None after it could not be written
    return Job(workbench, traced, profiled, beside=job)


def _chosen(job: Job, over: Stop) -> DividedStep | None:
    """The divided step; None if nothing is divided."""
    from placer.splits.local_statistics import made_local
    from placer.splits.step import split_step
    from placer.splits.step_graph import StepGraph
    from search.splits.pipeline import pipeline

    if job.settings.split == SPLIT_OFF:
        return None
    fewest = 2 if job.settings.split == SPLIT_AUTO else 1  # one for the whole step, and one for the divided
    if job.measurements_left() < fewest or job.time_is_up():
        job.ended.append("no ops were divided, because no measurements or no time were left after the single devices.")
        return None
    if job.settings.split == SPLIT_AUTO:
        return _most_promising(job, over)
    graph, plan = StepGraph(job.captured.graph_def, job.captured.input_names), job.settings.plan
    if plan is None:
        plan = pipeline(graph, job.settings.micro_batches or 0, len(job.topology))
    if job.settings.is_local:
        plan, note = made_local(graph, plan)
        if note is not None:
            job.notes.append(note)
    made_here = job.settings.plan is None
    step = _fitting(job, graph, plan) if made_here else split_step(job.captured, plan, graph)
    if plan.in_flight is not None and not step.is_limited:
        job.notes.append(NEEDED)
    return DividedStep(step, policy=None)


def _fitting(job: Job, graph: StepGraph, plan: SplitPlan) -> SplitStep:
    """The step in micro-batches, with as many under way at once as fit into the devices' memory."""
    from placer.splits.step import with_variables

    step, predicted_s = _judge(job).fitting(plan, graph)
    if predicted_s == inf:
        job.notes.append("Not even one micro-batch at a time is predicted to fit into the devices' memory.")
    elif step.plan.in_flight != plan.in_flight:
        job.notes.append(
            f"{step.plan.in_flight} micro-batches are under way at once instead of {plan.in_flight}, so that what they "
            "keep fits into the devices' memory."
        )
    return with_variables(step)


def _most_promising(job: Job, over: Stop) -> DividedStep | None:
    """The step divided by the most promising plan; None if no plan promises enough, or after `over()`. Then, or when
    the time is up, no further plan is judged.
    """
    from placer.splits.local_statistics import none_local
    from placer.splits.step import with_variables

    judge = _judge(job, lambda: over() or job.time_is_up())
    job.progress.phase("judging plans of splits")
    found = judge.best(len(job.topology), lambda policy: job.progress.phase(f"judging splits: {policy}"))
    if over():  # the judging may have been cut short, so that what it found says nothing of this step
        return None
    if isinstance(found, str) and job.time_is_up():
        found = NO_TIME
    if isinstance(found, str):
        job.ended.append(found)
        return None
    if job.settings.is_local and (note := none_local(found.step.plan)) is not None:
        job.notes.append(note)
    return DividedStep(with_variables(found.step), found.policy)


def _judge(job: Job, stop: Stop = never) -> Judge:
    from search.splits.choose import Judge

    # Costs of parts are estimated from the profile, so the whole step is judged by its profile, too: a calibration by
    # measured steps, which are faster than the sum of traced ops, would speak against every plan.
    profiled = Prediction.profiled(job.groups, job.topology, job.settings.headroom, job.settings.schedule)
    return Judge(job.captured, profiled, job.settings.groups, job.settings.seed, local=job.settings.is_local, stop=stop)
