"""What the bench `gpu` measures, in the process that holds the devices: searches, a training, the cost of autoplace."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np
import tensorflow as tf

from experiments import zoo
from experiments.benches.bench import Facts
from experiments.benches.gpu.figures import contestants, found_facts, name_of
from experiments.benches.gpu.tasks import SEARCHERS, Wanted
from experiments.benches.online.overhead import in_blocks
from experiments.benches.online.training import Training
from experiments.benches.process import forget_networks
from experiments.jobs.search.ending import finish
from experiments.jobs.search.finding import Finding, by_merit, step_s
from experiments.jobs.search.job import Job
from experiments.jobs.search.settings import SearchSettings
from experiments.report.progress import bar
from placer.devices.cluster import Devices
from placer.devices.logical import gpu_names, split
from placer.devices.opening import open_devices
from placer.errors import one_line
from placer.execute.outputs import values
from placer.graph.defaults import HEADROOM
from placer.graph.mapping import Mapping
from placer.measure.settings import RunnerSettings
from placer.result import summary

SEARCH_SHARE, FINAL_SHARE = 0.55, 0.2  # of a task's seconds: when the search stops asking; what the last contest takes
AT_LEAST = 2  # mappings of the last searcher, whatever the time
TRACED, TRACE_WARM_UP = 3, 1
HOPELESS = 3.0  # times the incumbent: dropped after one step
FINALISTS = 2  # besides the best of every contestant
TIGHT_HEADROOM = 0.35  # for activations, which the memory of ops does not count
STEPS = 30  # of the training under tight memory
BLOCKS, BLOCK_S = 12, 0.4  # of calls of autoplace, and of bare steps
MOST_EACH = 60  # steps a block
BUDGET = 6  # of the search under autoplace
PATIENCE = 1.5  # times the seconds of its task, which the search under autoplace may take
AT_PACE = 160  # calls without pauses before the blocks: kernels then overlap, which autoplace takes for another load
MEMORY_WORDS = ("resourceexhausted", "resource exhausted", "resource_exhausted", "oom when allocating", "out of memory")


class GpuStudy:
    """Holds devices, and measures on them one network after the other."""

    def __init__(self, devices: str | None, clock: Callable[[], float] = time.perf_counter) -> None:
        split(devices)  # before any variable initialises the devices
        self.spec, self.clock = devices, clock

    @cached_property
    def devices(self) -> Devices:
        """Opened, with links measured, when they are first needed."""
        return open_devices(self.spec)

    def hardware(self, _: Any) -> Facts:
        """The names of the GPUs that TensorFlow sees; nothing is measured."""
        return {"gpus": [name or "an unnamed GPU" for name in gpu_names()]}

    def searched(self, wanted: Wanted) -> Facts:
        """Search, and step all contestants side by side at the end."""
        with self._job(wanted) as job:
            return _facts(job, _searched(job))

    def tight(self, wanted: Wanted) -> Facts:
        """Search under a memory limit for a model made on the CPU, then train some steps under the mapping found."""
        with tf.device(self.devices.tf_names[self.devices.topology.names[-1]]):  # the CPU is the last device
            training = zoo.load(wanted.model, batch=wanted.batch)
        with self._job(wanted, training) as job:
            finding = _searched(job)
            losses, step_s = _trained(job, finding.mapping)
            return {
                **_facts(job, finding),
                "limit_bytes": wanted.limit_bytes,
                "table_bytes": _table_bytes(training),
                "trains": all(map(math.isfinite, losses)) and losses[-1] < losses[0],
                "losses": [losses[0], losses[-1]],
                "steps": len(losses),
                "trained_step_s": step_s,
            }

    def default(self, wanted: Wanted) -> Facts:
        """Make and train the same model under TensorFlow's default. Returns whether it lacks memory, and where."""
        where = "when the model was made"
        try:
            training = zoo.load(wanted.model, batch=wanted.batch)
            where = "when it was trained"
            losses = _losses(tf.function(training.step), training.example_inputs)
        except Exception as error:  # Keras wraps TensorFlow's errors in many types
            if not for_memory(error):
                raise
            return {"default": "fails: memory", "where": where, "detail": one_line(str(error))[:200]}
        return {"default": "ran", "losses": losses}

    def autoplaced(self, wanted: Wanted) -> Facts:
        """Measure the cost of a call of autoplace after its search, beside the bare step that it settled on."""
        with Training(wanted.model, None, min(BUDGET, wanted.measurements)) as training:
            took = training.until_steady(PATIENCE * wanted.seconds)
            training.steps(AT_PACE)
            took += training.until_steady(wanted.seconds, pause_s=0.0)
            each, begin = int(BLOCK_S / max(median(took[-10:]), 1e-6)), training.auto.steps + 1
            found = in_blocks(training, BLOCKS, max(5, min(MOST_EACH, each)))
            said = [entry.sentence for entry in training.auto.journal.entries if entry.step >= begin]
            mapping = training.auto.mapping
            settled_on = "default" if mapping is None else _where(mapping)
            return {**found, "settled_on": settled_on, "calls": len(took), "meanwhile": said}

    forget = staticmethod(forget_networks)

    @contextmanager
    def _job(self, wanted: Wanted, training: zoo.TrainingStep | None = None) -> Iterator[Job]:
        settings = SearchSettings(
            wanted.model,
            self.spec,
            searchers=SEARCHERS,
            measurements=wanted.measurements + len(self.devices.topology),
            minutes=SEARCH_SHARE * wanted.seconds / 60,
            batch=wanted.batch,
            headroom=HEADROOM if training is None else TIGHT_HEADROOM,
            traced=TRACED,
            warm_up=TRACE_WARM_UP,
            finalists=FINALISTS,
            final_s=FINAL_SHARE * wanted.seconds,
        )
        devices = limited(self.devices, wanted.limit_bytes)
        runner = RunnerSettings(drop_at_once=HOPELESS)
        with Job.opened(settings, bar(quiet=False), devices=devices, training=training, runner=runner) as job:
            yield job


def limited(devices: Devices, limit_bytes: int | None) -> Devices:
    """The devices, with at most `limit_bytes` of memory on all except the last."""
    if limit_bytes is None:
        return devices
    *small, last = devices.topology.devices
    small = [replace(d, memory_bytes=min(limit_bytes, d.memory_bytes or limit_bytes)) for d in small]
    return replace(devices, topology=replace(devices.topology, devices=(*small, last)))


def for_memory(error: BaseException | None) -> bool:
    """Whether an exception, or one of its causes, says that memory was used up."""
    while error is not None:
        if isinstance(error, tf.errors.ResourceExhaustedError | MemoryError):
            return True
        if any(words in str(error).lower() for words in MEMORY_WORDS):
            return True
        error = error.__cause__ or error.__context__
    return False


def _searched(job: Job) -> Finding:
    job.measure_singles()
    job.measure_searchers()
    if all(row.searcher != SEARCHERS[-1] for row in job.trials):  # no time was left for the last searcher
        session = job.session(SEARCHERS[-1])
        session.tell((row.mapping, row.result) for row in job.trials)
        job.measure_all([(SEARCHERS[-1], mapping) for mapping in session.ask(AT_LEAST)])
    ran = by_merit(job.trials)
    firsts = [next(row for row in ran if name_of(row) == name) for name in contestants(ran)]
    return finish([job], beside=[row for row in firsts if step_s(row) <= HOPELESS * step_s(ran[0])])


def _facts(job: Job, finding: Finding) -> Facts:
    costs, devices = job.prediction.predictor.simulator.costs, list(finding.mapping.devices)
    cost_s = costs[range(len(devices)), devices]
    seconds_on = np.bincount(devices, cost_s, len(job.topology))
    return {**found_facts(finding, [float(s) for s in seconds_on]), "stages_from_bytes": job.devices.stages_from}


def _trained(job: Job, mapping: Mapping) -> tuple[list[float], float]:
    """Losses of STEPS steps under a mapping, and the median seconds of the second half."""
    step, _ = job.runner.prepare(mapping)
    losses, took = [], []
    try:
        for _ in range(STEPS):
            begin_s = job.clock()
            losses.append(float(values(step.run_flat(job.inputs))[0].ravel()[0]))
            took.append(job.clock() - begin_s)
    finally:
        step.close()
    return losses, summary(took[STEPS // 2 :]).step_s


def _losses(step: Callable[..., Any], inputs: Sequence[Any]) -> list[float]:
    found = [float(step(*inputs)) for _ in range(STEPS)]
    return [found[0], found[-1]]


def _table_bytes(training: zoo.TrainingStep) -> int:
    """The bytes of the embedding tables."""
    weights = [] if training.model is None else training.model.weights
    return sum(4 * math.prod(weight.shape) for weight in weights if weight.name == "table")


def _where(mapping: Mapping) -> str:
    """The device of all ops, or how many devices have some."""
    names = mapping.topology.names
    return names[mapping.devices[0]] if mapping.is_single else f"{len(set(mapping.devices))} devices"
