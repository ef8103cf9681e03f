"""The same job on a GPU: the zoo on CPU + GPU, one card as several devices, and a model that does not fit into it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import psutil

from experiments.benches.bench import BenchOptions, Facts, ms, say
from experiments.benches.gpu.ahead import compile_ahead
from experiments.benches.gpu.figures import all_facts, tight_facts
from experiments.benches.gpu.tasks import (
    MINUTES,
    SEARCHERS,
    TIGHT_BATCH,
    TRIAL_BATCH,
    Budget,
    Hardware,
    Task,
    Wanted,
    check_model,
    hardware_of,
    tables_mib,
    tasks_of,
)
from experiments.benches.kept_runs import kept
from experiments.benches.process import Caps, Doer, Measurer
from experiments.benches.taken_options import Takes
from placer.errors import BadInputError, PlacerError

MEASUREMENTS = 8  # mappings of each search, besides single devices
HOW = 2  # version of the measuring; results of other versions are measured again
MEMORY_SHARE = 0.85  # of the machine's memory, which the process that measures may take
RENEWED_AFTER = 10_000  # questions: in effect never, because a new process takes seconds to open the GPU
START_S = 180.0  # within which a process must say what the hardware is
TAKES = Takes(models=check_model, runs=True, devices=True, minutes=True)


def bench_facts(options: BenchOptions) -> Facts:
    """Measure what there is time for, the most important first. With --runs, nothing is measured twice.

    --model: only these networks. --measurements: mappings of each search besides single devices. --minutes: for all
    tasks together. --devices cpus:N: try all parts on logical CPU devices at the zoo's small sizes, without figures to
    keep. Raises BadInputError without a GPU.
    """
    minutes = MINUTES if options.minutes is None else options.minutes
    hardware = _checked(options, minutes)
    planned = tasks_of(hardware, options.models)
    budget = Budget(minutes)
    with Host() as host:
        compile_ahead(SEARCHERS)  # while the first process starts and its first network is built
        gpu_run = GpuRun(options, hardware, host, budget, _device(host, hardware))
        results = [gpu_run.result(task, i, len(planned)) for i, task in enumerate(planned)]
    return {
        "device": gpu_run.device,
        "real": hardware.real,
        **_assembled(planned, results),
        "limit_mib": hardware.limit_mib,
        "measurements": gpu_run.measurements,
        "minutes": minutes,
        "seconds": budget.spent_s,
        "seeds": [0],
        "repeats": {
            task.title: facts["repeats"] for task, facts in zip(planned, results, strict=True) if "repeats" in facts
        },  # of the last contest
    }


def opened(devices: str | None) -> Doer:
    """Make the study, in the process that measures."""
    from experiments.benches.gpu.study import GpuStudy

    return GpuStudy(devices)


class Host(Measurer):
    """The process that holds certain devices. It ends when others are needed, because it takes most of a GPU."""

    def __init__(self) -> None:
        memory_bytes = int(MEMORY_SHARE * psutil.virtual_memory().total)
        super().__init__(partial(opened, None), Caps(memory_bytes=memory_bytes, batch=RENEWED_AFTER))
        self.devices: str | None = None

    def ask_on(self, devices: str | None, method: str, argument: object, seconds: float) -> Facts:
        """Return what the method returns in a process that holds these devices, or {"failed": line, "why": word}."""
        if devices != self.devices:
            self.end()
            self.devices, self.make = devices, partial(opened, devices)
        found = self.ask(method, argument, seconds)
        if "skipped" not in found:
            return found
        return {"failed": f"{found['skipped']}: {found['detail']}", "why": found["skipped"]}


@dataclass(frozen=True)
class GpuRun:
    """One run of the bench: what it asks, of which process, and in how many seconds. device: in words."""

    options: BenchOptions
    hardware: Hardware
    host: Host
    budget: Budget
    device: str

    @property
    def measurements(self) -> int:
        """Mappings of each search besides single devices."""
        return self.options.measurements or MEASUREMENTS

    def result(self, task: Task, i: int, count: int) -> Facts:
        """The facts of the i-th of `count` tasks, or {"failed": line}."""
        settings = {"task": task.title, "device": self.device, "measurements": self.measurements, "how": HOW}
        facts = kept(self.options, f"gpu/{task.key}", settings, partial(self._measured, task, i, count))
        say(f"    {outcome(task, facts)}")
        return facts

    def _measured(self, task: Task, i: int, count: int) -> Facts:
        share_s = self.budget.share_s(task, count - i)
        if share_s is None:
            return {"failed": "not reached: no time was left", "why": "time", "not_reached": True}
        say(f"[{i + 1} of {count}] {task.title}: about {share_s:.0f} s, {self.budget.left_s:.0f} s left in all")
        if task.part == "tight":
            facts = self._tight(task, share_s)
        else:
            wanted = Wanted(self.hardware.model(task.name), self.measurements, share_s)
            facts = self._ask(task, "autoplaced" if task.part == "autoplace" else "searched", wanted)
        cut_short = facts.get("why") == "time" and self.budget.left_s <= 0
        return {**facts, "not_reached": True} if cut_short else facts

    def _tight(self, task: Task, share_s: float) -> Facts:
        """Run the default in one process, then the search in another, so that nothing is left of the first."""
        limit_mib, batch = self.hardware.limit_mib, TIGHT_BATCH if self.hardware.real else TRIAL_BATCH
        model = f"{task.name}@{tables_mib(limit_mib)}MiB"
        wanted = Wanted(model, self.measurements, share_s, batch, limit_mib * 2**20)
        found = []
        for method in ("default", "tight"):
            self.host.end()
            found.append(self._ask(task, method, wanted))
        return tight_facts(*found)

    def _ask(self, task: Task, method: str, wanted: Wanted) -> Facts:
        return self.host.ask_on(task.devices, method, wanted, self.budget.limit_s(wanted.seconds))


def _checked(options: BenchOptions, minutes: float) -> Hardware:
    """Return the hardware. Raises BadInputError for options that could only fail later."""
    if not minutes >= 1:
        raise BadInputError(f"--minutes {minutes}: give at least 1.")
    hardware = hardware_of(options.devices)
    if options.record and not hardware.real:
        raise BadInputError(
            f"--record with --devices {options.devices}: no GPU takes part, so there is no figure to keep."
        )
    return hardware


def _device(host: Host, hardware: Hardware) -> str:
    """The name of the GPUs. Raises BadInputError without a GPU, and PlacerError if the process fails."""
    if not hardware.real:
        return f"{hardware.whole}, logical CPU devices, for no figures"
    found = host.ask_on(hardware.whole, "hardware", None, START_S)
    if "failed" in found:
        raise PlacerError(f"the process that should measure could not say what GPUs there are: {found['failed']}")
    if not found["gpus"]:
        raise BadInputError(
            "TensorFlow sees no GPU here (it needs tensorflow[and-cuda] and NVIDIA's driver); `--devices cpus:2` tries "
            "all parts on logical CPU devices, for no figures."
        )
    return ", ".join(found["gpus"])


def _assembled(planned: Sequence[Task], results: Sequence[Facts]) -> Facts:
    """The facts of the bench, from the facts of each task."""
    found: dict[str, dict[str, Facts]] = defaultdict(dict)
    alone: dict[str, Facts] = {}
    not_reached, failed = [], {}
    for task, facts in zip(planned, results, strict=True):
        if facts.get("not_reached"):
            not_reached.append(task.title)
            continue
        if "failed" in facts:
            failed[task.title] = facts["failed"]
        if task.part in ("tight", "autoplace"):
            alone[task.part] = facts
        else:
            found["models" if task.part == "models" else str(task.devices)][task.name] = facts
    facts = all_facts(found, alone.get("tight"), alone.get("autoplace"))
    return {**facts, "not_reached": not_reached, "failed": failed}


def outcome(task: Task, facts: Facts) -> str:
    """A task's result in a line."""
    if "failed" in facts:
        return str(facts["failed"])
    if task.part == "tight":
        return f"default: {facts['default']}; trains placed: {facts['trains']}, {ms(facts['step_s'])} a step"
    if task.part == "autoplace":
        return f"overhead {facts['overhead']:+.1%} +- {facts['overhead_error']:.1%} of {ms(facts['bare_s'])}"
    return (
        f"{facts['ratio_to_tf_default']:.3f}x TensorFlow's default ({ms(facts['tf_default_s'])}), delivered: "
        f"{facts['delivered']}; {facts['measured']} mappings, {facts['seconds']:.0f} s"
    )
