"""Training under autoplace by the clock: what it costs, what it gains, and what load changes and kills do to it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from experiments import zoo
from experiments.benches import own_network
from experiments.benches.bench import BenchOptions, Facts
from experiments.benches.kept_runs import kept
from experiments.benches.online.judge import judged
from experiments.benches.online.neighbours import LOADS
from experiments.benches.process import facts_alone
from experiments.benches.taken_options import Takes
from placer.errors import BadInputError

BUDGET = 16  # mappings measured by a search
NETWORKS = ("towers", "two_tower", "moe", "seq2seq_lstm")


@dataclass(frozen=True)
class Effort:
    """The length of each part. Minutes on two cores: overhead 3, oracle 12, loads 45, steady 5, kills 6.

    calls: of a run against the oracle. watched: steps after a load landed, and after it left. steady_steps: of each of
    two stretches. runs, kills: trainings in which workers are killed, and kills in each.
    """

    overhead_models: tuple[str, ...] = ("towers", "towers@2")
    overhead_blocks: int = 12
    oracle_models: tuple[str, ...] = NETWORKS[:2]
    calls: int = 2000
    load_models: tuple[str, ...] = NETWORKS
    watched: int = 100
    small_model: str = "towers@2"
    steady_steps: int = 10_000
    runs: int = 5
    kills: int = 10

    def scaled(self, share: float) -> Effort:
        """A shorter effort, for trying the bench out, but long enough for every figure."""
        fewer = NETWORKS[: max(1, round(len(NETWORKS) * share))]
        return Effort(
            oracle_models=fewer[:1],
            load_models=fewer,
            overhead_blocks=max(4, round(self.overhead_blocks * share)),
            calls=max(400, round(self.calls * share)),
            watched=max(50, round(self.watched * share)),
            steady_steps=max(200, round(self.steady_steps * share)),
            runs=max(1, round(self.runs * share)),
            kills=max(2, round(self.kills * share)),
        )


def check_model(model: str) -> None:
    """Raise BadInputError if `model` is neither NAME nor NAME@BATCH of a network of the zoo."""
    name, at, batch = model.partition("@")
    if name not in zoo.names() or (at and not (batch.isdecimal() and int(batch))):
        raise BadInputError(f"--model {model!r} is unknown; write NAME or NAME@BATCH, of {', '.join(zoo.names())}.")


TAKES = Takes(models=check_model, workers=True, runs=True)


def bench_facts(options: BenchOptions) -> Facts:
    """Run every part in its own process. With --runs, parts that were finished before are not run again.

    --model: the networks of the oracle and the loads (NAME or NAME@BATCH). --measurements: the budget of the searches;
    below 16, all parts get shorter in proportion.
    """
    budget = options.measurements or BUDGET
    effort = Effort().scaled(budget / BUDGET) if budget < BUDGET else Effort()
    part, small = partial(_part, options), {"model": effort.small_model}
    found = {
        "overhead": {
            model: part(
                "overhead", model, 600.0, model=model, blocks=effort.overhead_blocks * (4 if "@" in model else 1)
            )
            for model in effort.overhead_models
        },
        "oracle": {
            model: part("oracle", model, 1500.0, model=model, calls=effort.calls, budget=budget)
            for model in options.models or effort.oracle_models
        },
        "loads": [
            part(
                "loads", f"{model}-{load}", 900.0, model=model, load=load, budget=-(-budget // 2), steps=effort.watched
            )
            | {"model": model, "load": load}
            for model in options.models or effort.load_models
            for load in LOADS
        ],
        "steady": part("steady", "", 900.0, **small, steps=effort.steady_steps),
        "kills": [
            part("kills", str(seed), 240.0 + 100.0 * effort.kills, **small, seed=seed, kills=effort.kills)
            for seed in range(effort.runs)
        ],
    }
    return judged(found, effort.runs * effort.kills, options.workers, budget) | {
        "seeds": list(range(effort.runs)),  # of the trainings with kills; all other parts have the first
        "repeats": {"pairs of blocks": effort.overhead_blocks, "trainings with kills": effort.runs},
    }


def _part(options: BenchOptions, name: str, of: str, limit_s: float, **settings: Any) -> Facts:
    """Run one part in its own process. of: distinguishes parts of the same name; empty if there is one."""
    file_name = "-".join(filter(None, ("online", name, of)))
    settings |= {"workers": options.workers}
    run = partial(facts_alone, run_part, name, settings, seconds=limit_s)
    facts = kept(options, file_name, {"part": name, **settings}, run)
    print(f"{file_name}: {facts.get('failed', 'done')}", file=sys.stderr)
    return facts


def run_part(name: str, settings: dict[str, Any]) -> Facts:
    """Run the part in this process, which loads TensorFlow for it. settings: the part's arguments."""
    if name == "loads" and LOADS[settings["load"]].links:
        own_network.enter()  # before TensorFlow starts threads

    from experiments.benches.online import kills, landings, oracle, overhead, steady

    parts: dict[str, Callable[..., Facts]] = {
        "overhead": overhead.overhead_facts,
        "oracle": oracle.oracle_facts,
        "loads": landings.load_facts,
        "steady": steady.steady_facts,
        "kills": kills.kill_facts,
    }
    return parts[name](**settings)
