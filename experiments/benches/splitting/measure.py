"""One network on worker processes: searched without and with divided ops, and what both deliver stepped in turn."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from experiments.benches.bench import Facts, commit
from experiments.benches.gpu.figures import ratio_error
from experiments.benches.splitting.sameness import (
    ROUNDED,
    STEPS,
    THREADS,
    Training,
    placed_training,
    sameness,
    untouched_training,
)
from experiments.jobs.search.ending import finish
from experiments.jobs.search.finding import Finding, Progress, Trial, fastest
from experiments.jobs.search.job import Job, Workbench
from experiments.jobs.search.settings import SearchSettings
from experiments.jobs.search.side_by_side import prepared, stepped
from experiments.jobs.search.splitting import divided_job, measure_by_turns
from experiments.jobs.search.stages import TracedModel, profile_model, trace_model
from placer.errors import PlacerError
from placer.graph.mapping import Mapping
from placer.result import Measured
from placer.splits.plan_files import SPLIT_AUTO, SPLIT_OFF
from search.session.prediction import Prediction

if TYPE_CHECKING:  # TensorFlow is loaded when a network is measured
    from placer.devices.cluster import Devices
    from placer.execute.rewrite import PlacedStep

REPEATS = 40  # of the last comparison


@dataclass(frozen=True)
class Wanted:
    """What to measure. devices: as for placer.devices.opening.open_devices. minutes: for which each search may ask."""

    model: str
    devices: str | None
    measurements: int
    minutes: float
    batch: int | None = None
    steps: int = STEPS  # of the trainings that are compared
    repeats: int = REPEATS


@dataclass(frozen=True)
class Delivered:
    """What a search delivered, and its jobs: of the whole step, and of the divided step if there is one."""

    jobs: Sequence[Job]
    found: Finding

    @property
    def job(self) -> Job:
        """The job that delivered `found`."""
        return self.jobs[-1] if self.found.plan is not None else self.jobs[0]


def measured(wanted: Wanted) -> Facts:
    """The figures of one network. Raises PlacerError if no single device can run it.

    Both searches start from one profile on the same devices, each with all of the measurements. The mappings that they
    deliver are stepped in turn once more, so that no side is judged by the figures by which it was chosen.
    """
    begin_s = time.perf_counter()
    settings = SearchSettings(
        wanted.model, wanted.devices, measurements=wanted.measurements, minutes=wanted.minutes, batch=wanted.batch
    )
    traced = trace_model(settings, Progress())
    others = {
        name: untouched_training(traced.captured, traced.inputs, wanted.steps, rounded=name == ROUNDED)
        for name in (THREADS, ROUNDED)
    }
    from placer.devices.opening import open_devices

    with open_devices(wanted.devices, deadlines=True) as devices, ExitStack() as stack:
        profiled = profile_model(traced, devices, settings, Progress())
        whole, auto = (
            _delivered(replace(settings, split=split), traced, devices, profiled, stack)
            for split in (SPLIT_OFF, SPLIT_AUTO)
        )
        single = whole.found.best_single
        if single is None:
            raise PlacerError(f"no single device can run {wanted.model}, so there is nothing to compare with.")
        return {
            **_ratios(*_in_turn(whole, auto, single.mapping, wanted.repeats)),
            **_limits(whole, auto),
            **_plan(auto),
            **_same(whole.job, auto, single.mapping, others, wanted.steps),
            "untouched_s": whole.found.untouched.step_s,
            "untouched_spread_s": whole.found.untouched.spread_s,
            "ops": len(traced.captured.graph),
            "measured_off": len(whole.found.measured),
            "measured_auto": len(auto.found.measured),
            "commit": commit(),
            "seconds": time.perf_counter() - begin_s,
        }


def _delivered(
    settings: SearchSettings, traced: TracedModel, devices: Devices, profiled: Prediction, stack: ExitStack
) -> Delivered:
    """Search as `placer search` does; the search's minutes begin now. stack: closes the search's steps."""
    job = Job(Workbench(settings=settings, devices=devices, begin_s=time.perf_counter()), traced, profiled)
    stack.callback(job.runner.close)
    job.measure_singles(settings.measurements)
    jobs = [job, *filter(None, [stack.enter_context(divided_job(job))])]
    measure_by_turns(jobs)
    return Delivered(jobs, finish(jobs))


def _in_turn(whole: Delivered, auto: Delivered, single: Mapping, repeats: int) -> list[Measured]:
    """Step the best single device and both delivered mappings in turn. Raises PlacerError if one no longer runs."""
    asked = [(whole.job, single), (whole.job, whole.found.best.mapping), (auto.job, auto.found.best.mapping)]
    with ExitStack() as stack:
        steps: list[PlacedStep] = []
        for job, mapping in asked:
            steps += stack.enter_context(prepared(job, [mapping]))[0].values()
        if len(steps) < len(asked):
            raise PlacerError(f"a mapping of {whole.found.model} that was delivered does not run any more.")
        return stepped(whole.job, steps, repeats, untouched=False)[0]


def _ratios(single: Measured, off: Measured, auto: Measured) -> Facts:
    names = {"best_single": single, "off": off, "auto": auto}
    return {
        **{f"{name}_s": result.step_s for name, result in names.items()},
        **{f"{name}_spread_s": result.spread_s for name, result in names.items()},
        "repeats": single.repeats,
        "ratio_to_best_single": single.step_s / auto.step_s,
        "ratio_error": ratio_error(single, auto),
        "off_to_best_single": single.step_s / off.step_s,
        "ratio_on_vs_off": off.step_s / auto.step_s,
        "on_vs_off_error": ratio_error(off, auto),
    }


def _limits(whole: Delivered, auto: Delivered) -> Facts:
    """The predicted bounds of steps before and after ops are divided, and what crosses between devices."""
    facts: Facts = {"delivers_divided": auto.found.plan is not None, "ended": list(auto.found.ended)}
    tried = auto.jobs[-1]
    for name, found, job, row in (
        ("off", whole.found, whole.job, whole.found.best),
        ("auto", auto.found, auto.job, auto.found.best),
        ("divided", None, tried, _best_of(tried) if tried.traced.plan is not None else None),
    ):
        if row is None:
            facts |= {f"{key}_{name}": None for key in ("bound_s", "predicted_s", "crossing_bytes", "crossings")}
            continue
        transfers = job.prediction.timeline(job.op_mapping(row.mapping)).transfers
        facts |= {
            f"bound_s_{name}": job.prediction.bound_s() if found is None else found.lower_bound_s,
            f"predicted_s_{name}": job.prediction.step_s(row.mapping),
            f"crossing_bytes_{name}": sum(transfer.link_bytes for transfer in transfers),
            f"crossings_{name}": len(transfers),
        }
    return facts


def _best_of(job: Job) -> Trial | None:
    """The best trial of the job, by its races; None if nothing ran."""
    return job.ranked()[0] if fastest(job.trials) else None


def _plan(auto: Delivered) -> Facts:
    """What was divided in the step that was tried, delivered or not; all None if no plan promised enough."""
    traced = auto.jobs[-1].traced
    if traced.plan is None:
        return {"policy": None, "ops_divided": None, "variables_divided": None, "ways": None}
    return {
        "policy": traced.policy,
        "ops_divided": len(traced.plan),
        "variables_divided": len(traced.captured.divided),
        "ways": dict(Counter(division.way for division in traced.plan.divisions.values()).most_common()),
    }


def _same(job: Job, auto: Delivered, single: Mapping, others: dict[str, Training], steps: int) -> Facts:
    """How alike the whole step and the divided step that was tried train, under the best mapping of the divided step.
    All None if none was tried, or if the step draws random numbers.
    """
    divided = auto.jobs[-1]
    row = _best_of(divided) if divided.traced.plan is not None else None
    if row is None or job.captured.is_random:
        return {"sameness": None, "loss_rel_err": None}
    found = sameness(
        placed_training(job, single, steps),
        placed_training(divided, row.mapping, steps),
        others,
    )
    return {"sameness": found, "loss_rel_err": found["loss_rel_err"]}
