"""Training under autoplace by the clock: what it costs, what it gains, and what load changes and kills do to it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import zoo
from experiments.benches.bench import BenchOptions, Facts
from experiments.benches.comparisons import kept
from experiments.benches.online.judge import judged
from experiments.benches.online.process import in_part
from placer.errors import BadInputError

BUDGET = 16  # mappings measured by a search


@dataclass(frozen=True)
class Effort:
    """How long each part is. Minutes on two cores: overhead 3, oracle 7 (of `towers`), recovery 7, steady 5, kills 6.

    calls: of a run against the oracle. repeats: landings of a hog. steady_steps: of each of two stretches. runs,
    kills: trainings in which workers are killed, and kills in each.
    """

    overhead_models: tuple[str, ...] = ("towers", "towers@2")
    overhead_blocks: int = 12
    oracle_models: tuple[str, ...] = ("towers",)
    calls: int = 2000
    recovery_model: str = "towers"
    repeats: int = 3
    small_model: str = "towers@2"
    steady_steps: int = 10_000
    runs: int = 5
    kills: int = 10

    def scaled(self, share: float) -> Effort:
        """A shorter one, for trying the bench out; never below what gives every figure."""
        return Effort(
            overhead_blocks=max(4, round(self.overhead_blocks * share)),
            calls=max(400, round(self.calls * share)),
            repeats=max(1, round(self.repeats * share)),
            steady_steps=max(200, round(self.steady_steps * share)),
            runs=max(1, round(self.runs * share)),
            kills=max(2, round(self.kills * share)),
        )


def run(options: BenchOptions) -> Facts:
    """Every part in a process of its own; with --runs those that were finished before are not run again.

    --model: the networks of the overhead and of the oracle (NAME or NAME@BATCH). --measurements: the budget of the
    searches; below 16 all parts get shorter by as much.
    """
    _check(options)
    budget = options.measurements or BUDGET
    effort = Effort().scaled(budget / BUDGET) if budget < BUDGET else Effort()
    found: dict[str, Any] = {
        "overhead": {name: _overhead(name, options, effort) for name in options.models or effort.overhead_models},
        "oracle": {name: _oracle(name, options, effort, budget) for name in options.models or effort.oracle_models},
        "recovery": _recovery(options, effort, budget),
        "steady": _part("steady", "online-steady", options, _small(options, effort, steps=effort.steady_steps), 900.0),
        "kills": [_killed(seed, options, effort) for seed in range(effort.runs)],
    }
    return judged(found, effort.runs * effort.kills, options.workers, budget)


def _check(options: BenchOptions) -> None:
    """Refuse at once what the first part would fail of. Raises BadInputError."""
    if options.measurements is not None and options.measurements < 1:
        raise BadInputError(f"--measurements {options.measurements}: give at least 1.")
    for model in options.models or ():
        name, at, batch = model.partition("@")
        if name not in zoo.names() or (at and not (batch.isdecimal() and int(batch))):
            raise BadInputError(f"--model {model!r} is unknown; write NAME or NAME@BATCH, of {', '.join(zoo.names())}.")


def _overhead(model: str, options: BenchOptions, effort: Effort) -> Facts:
    blocks = effort.overhead_blocks * (4 if "@" in model else 1)
    settings = {"model": model, "workers": options.workers, "blocks": blocks}
    return _part("overhead", f"online-overhead-{_plain(model)}", options, settings, 600.0)


def _oracle(model: str, options: BenchOptions, effort: Effort, budget: int) -> Facts:
    settings = {"model": model, "workers": options.workers, "calls": effort.calls, "budget": budget}
    return _part("oracle", f"online-oracle-{_plain(model)}", options, settings, 1500.0)


def _recovery(options: BenchOptions, effort: Effort, budget: int) -> Facts:
    settings = {"workers": options.workers, "budget": budget, "model": effort.recovery_model, "repeats": effort.repeats}
    return _part("recovery", "online-recovery", options, settings, 1800.0)


def _killed(seed: int, options: BenchOptions, effort: Effort) -> Facts:
    settings = _small(options, effort, seed=seed, kills=effort.kills)
    return _part("kills", f"online-kills-{seed}", options, settings, 240.0 + 100.0 * effort.kills)


def _small(options: BenchOptions, effort: Effort, **settings: Any) -> Facts:
    return {"model": effort.small_model, "workers": options.workers, **settings}


def _part(name: str, file_name: str, options: BenchOptions, settings: Facts, limit_s: float) -> Facts:
    facts = kept(options, file_name, {"part": name, **settings}, lambda: in_part(name, settings, limit_s))
    print(f"{file_name}: {facts.get('failed', 'done')}", file=sys.stderr)
    return facts


def _plain(model: str) -> str:
    return Path(model).name.replace(":", "-")
