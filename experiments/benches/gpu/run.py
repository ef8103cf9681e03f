"""The same job on a GPU: the zoo on CPU + GPU, one card as several devices, and a model that does not fit into it."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from experiments.benches.bench import BenchOptions, Facts, ms
from experiments.benches.comparisons import kept
from experiments.benches.gpu.ahead import compile_ahead
from experiments.benches.gpu.figures import all_facts, tight_facts
from experiments.benches.gpu.host import Host
from experiments.benches.gpu.tasks import (
    MINUTES,
    SEARCHERS,
    TIGHT_BATCH,
    TRIAL_BATCH,
    Budget,
    Hardware,
    Task,
    Wanted,
    hardware_of,
    tables_mib,
    tasks_of,
)
from placer.errors import BadInputError, PlacerError

MEASUREMENTS = 8  # mappings of each search, single devices aside
HOW = 1  # version of the measuring; what another version measured is measured again
START_S = 180.0  # in which a process must say what the hardware is
PICTURE = Path("docs/gpu.png")


def run(options: BenchOptions) -> Facts:
    """What there is time for, the most important first; with --runs what was measured before is not measured again.

    --model: only these networks. --measurements: mappings of each search beside single devices. --minutes: of all
    together. --devices cpus:N: all parts on logical CPU devices at the zoo's small sizes, for no figures.
    Raises BadInputError without a GPU.
    """
    budget = Budget(_minutes(options))
    hardware, planned = _checked(options)
    with Host() as host:
        compile_ahead(SEARCHERS)  # while the first process starts and its first network is built
        device = _device(host, hardware)
        bench = Bench(options, hardware, host, budget, device)
        results = bench.results(planned)
    facts = {
        "device": device,
        "real": hardware.real,
        **_assembled(planned, results),
        "limit_mib": hardware.limit_mib,
        "measurements": bench.measurements,
        "minutes": _minutes(options),
        "seconds": budget.spent_s,
    }
    if options.record:
        from experiments.benches.gpu.plot import draw, picture_of

        PICTURE.parent.mkdir(exist_ok=True)
        draw(picture_of(facts), PICTURE)
    return facts


class Bench:
    """One run of the bench: what it asks, and the seconds it has for that."""

    def __init__(self, options: BenchOptions, hardware: Hardware, host: Host, budget: Budget, device: str) -> None:
        self.options, self.hardware, self.host, self.budget, self.device = options, hardware, host, budget, device
        self.measurements = options.measurements or MEASUREMENTS
        self.runs = replace(options, runs=None if options.runs is None else options.runs / "gpu")

    def results(self, planned: Sequence[Task]) -> list[Facts]:
        """The facts of each task, {"failed": line} where there are none."""
        found = []
        for i, task in enumerate(planned):
            settings = {"task": task.title, "device": self.device, "measurements": self.measurements, "how": HOW}
            facts = kept(self.runs, task.key, settings, partial(self._result, task, i, len(planned)))
            say(f"    {outcome(task, facts)}")
            found.append(facts)
        return found

    def _result(self, task: Task, i: int, count: int) -> Facts:
        share_s = self.budget.share_s(task, count - i)
        if share_s is None:
            return {"failed": "not reached: no time was left", "why": "time", "not_reached": True}
        say(f"[{i + 1} of {count}] {task.title}: about {share_s:.0f} s, {self.budget.left_s:.0f} s left in all")
        facts = self._tight(task, share_s) if task.part == "tight" else self._asked(task, share_s)
        cut_short = facts.get("why") == "time" and self.budget.left_s <= 0
        return {**facts, "not_reached": True} if cut_short else facts

    def _asked(self, task: Task, share_s: float) -> Facts:
        method = "autoplaced" if task.part == "autoplace" else "searched"
        wanted = Wanted(self.hardware.model(task.name), self.measurements, share_s)
        return self.host.ask(task.devices, method, wanted, self.budget.limit_s(share_s))

    def _tight(self, task: Task, share_s: float) -> Facts:
        """The default in a process of its own, then the search in another, where nothing is left of the first."""
        limit_mib, batch = self.hardware.limit_mib, TIGHT_BATCH if self.hardware.real else TRIAL_BATCH
        model = f"{task.name}@{tables_mib(limit_mib)}MiB"
        wanted = Wanted(model, self.measurements, share_s, batch, limit_mib * 2**20)
        self.host.end()
        default = self.host.ask(task.devices, "default", wanted, self.budget.limit_s(share_s))
        self.host.end()
        placed = self.host.ask(task.devices, "tight", wanted, self.budget.limit_s(share_s))
        return tight_facts(default, placed)


def _checked(options: BenchOptions) -> tuple[Hardware, list[Task]]:
    """Refuse at once what could only fail later. Raises BadInputError."""
    if options.measurements is not None and options.measurements < 1:
        raise BadInputError(f"--measurements {options.measurements}: give at least 1.")
    hardware = hardware_of(options.devices)
    if options.record and not hardware.real:
        raise BadInputError(
            f"--record with --devices {options.devices}: no GPU takes part, so there is no figure to keep."
        )
    return hardware, tasks_of(hardware, options.models)


def _minutes(options: BenchOptions) -> float:
    minutes = MINUTES if options.minutes is None else options.minutes
    if not minutes >= 1:
        raise BadInputError(f"--minutes {minutes}: give at least 1.")
    return minutes


def _device(host: Host, hardware: Hardware) -> str:
    """What is measured on, in words. Raises BadInputError without a GPU, PlacerError where nothing can be asked."""
    if not hardware.real:
        return f"{hardware.whole}, logical CPU devices, for no figures"
    found = host.ask(hardware.whole, "hardware", None, START_S)
    if "failed" in found:
        raise PlacerError(f"the process that should measure could not say what GPUs there are: {found['failed']}")
    if not found["gpus"]:
        raise BadInputError(
            "TensorFlow sees no GPU here (it needs tensorflow[and-cuda] and NVIDIA's driver); `--devices cpus:2` tries "
            "all parts on logical CPU devices, for no figures."
        )
    return ", ".join(found["gpus"])


def _assembled(planned: Sequence[Task], results: Sequence[Facts]) -> Facts:
    """The facts from those of each task."""
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


def say(text: str) -> None:
    """Progress, for who watches."""
    print(text, file=sys.stderr, flush=True)
