"""The main job: trace a training step, profile it, search, measure, and hand back the fastest mapping."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

from experiments.jobs.interrupt import interruptible
from experiments.jobs.search.ending import cut_short, finish
from experiments.jobs.search.finding import Finding, Progress, fastest
from experiments.jobs.search.job import Job
from experiments.jobs.search.settings import SearchSettings
from experiments.jobs.search.splitting import divided_job, measure_by_turns
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

    The delivered mapping was measured side by side with the fastest single device, and is that one where
    nothing beat it; where pins or memory leave no single device, with the next fastest mapping. Ctrl-C ends the search
    with the best so far.
    Raises BadInputError for a model, device, pin, plan of splits or searcher that cannot be used.
    """
    with Job.opened(settings, progress or Progress(), store, clock) as job, ExitStack() as stack:
        from placer.devices.workers.deadline import DeviceLostError, at_the_end, waiting

        jobs = [job]
        with at_the_end(lambda lost: unfinished(cut_short(jobs, lost))):
            try:
                with waiting("mappings were searched", first=True, loose=True):
                    job.measure_singles()
                    with interruptible() as pressed:
                        jobs += filter(None, [stack.enter_context(divided_job(job, pressed))])
                        measure_by_turns(jobs, pressed)
                    if job.devices.addresses and job.devices.workers is None and fastest(job.rows):
                        unfinished(cut_short(jobs, BEFORE_THE_END))  # a worker elsewhere that freezes may end all
                    return finish(jobs, trace, interrupted=pressed())
            except DeviceLostError as error:
                if not any(fastest(job.rows) for job in jobs):
                    raise
                return cut_short(jobs, str(error))
