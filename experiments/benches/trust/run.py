"""Wrapped trainings against the same trainings alone: what they compute, what is read, their step times and memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from importlib import import_module
from threading import Thread
from typing import Any, TypeVar

from experiments.benches.bench import BenchOptions, Facts
from experiments.benches.kept_runs import kept
from experiments.benches.paired_trainings import FEWEST_PAIRS
from experiments.benches.process import Caps, Measurer, environment, facts_alone
from experiments.benches.taken_options import Takes
from experiments.jobs.profile import Advance
from experiments.loops.catalogue import LOOPS, SEED, Loop, find
from experiments.loops.environment import EXACT
from experiments.report.progress import progress_bar

T = TypeVar("T")
BUDGET, READS, MOVES = 16, 100_000, 20
WAYS = ("moved", "searched")
LIMIT_S = 240.0
TAKES = Takes(models=find, workers=True, runs=True)


def bench_facts(options: BenchOptions) -> Facts:
    """Compare every loop, moved by hand and searched, with itself alone, beside reads and memory; then step times.

    --model: the loops. --measurements: mappings that a search measures before step times are compared; below 16, there
    are fewer reads in proportion.
    """
    loops = [find(name) for name in options.models or LOOPS]
    budget = options.measurements or BUDGET
    inside = [loop for loop in loops if not loop.alone]
    reads = max(1000, READS * min(budget, BUDGET) // BUDGET)
    with progress_bar(2 * len(inside) + len(loops) + 1, quiet=False) as advance:
        with environment(EXACT), Measurer(_judge, Caps(LIMIT_S, batch=10 * len(LOOPS))) as judge:
            beside = _beside(
                lambda: (_part(options, "reads", "", reads=reads), _part(options, "growth", "", moves=MOVES))
            )
            compared = {loop.name: _compared(options, loop, judge, advance) for loop in loops}
            advance("reading and memory")
            reading, growth = beside.result()
        paces = {}
        for loop in inside:
            advance(f"{loop.name}: step times")
            settings = {"loop": loop.name, "workers": options.workers, "budget": budget}
            paces[loop.name] = _part(options, "pace", loop.name, **settings)
    return judged(compared, reading, paces, growth, options.workers, budget) | {
        "seeds": [SEED],
        "repeats": {"reads": reads, "moves": MOVES, "pairs of blocks at least": FEWEST_PAIRS},
    }


def _beside(call: Callable[[], T]) -> Future[T]:
    """Run `call` in a thread beside this one; for work whose speed does not matter, in both threads."""
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(call())
        except BaseException as error:
            found.set_exception(error)

    Thread(target=run, daemon=True).start()
    return found


def judged(
    compared: dict[str, dict[str, Facts]], reading: Facts, paces: dict[str, Facts], growth: Facts, workers: int,
    budget: int,
) -> Facts:  # fmt: skip
    """The figures of all parts; None for a failed part. A loop that breaks the contract counts as different."""
    runs = [run for ways in compared.values() for run in ways.values()]
    known = not any("failed" in run for run in runs)
    ratios: list[float | None] = [pace.get("ratio") for pace in paces.values()]
    return {
        "loops": len(compared),
        "variables": sum(run.get("variables", 0) for run in runs),
        "differences": sum(len(run["different"]) + len(run["broken"]) for run in runs) if known else None,
        "reads": reading.get("reads"),
        "stale_reads": reading.get("stale_reads"),
        "worst_vs_untouched": _worst(ratios),
        "growth_bytes": growth.get("growth_bytes"),
        "by_loop": compared,
        "reading": reading,
        "paces": paces,
        "growth": growth,
        "workers": workers,
        "budget": budget,
    }


def _worst(ratios: Sequence[float | None]) -> float | None:
    known = [ratio for ratio in ratios if ratio is not None]
    return max(known) if known and len(known) == len(ratios) else None


def _compared(options: BenchOptions, loop: Loop, judge: Measurer, advance: Advance) -> dict[str, Facts]:
    """Run the loop in each way. A loop that must be left alone is only searched."""
    found = {}
    for way in WAYS if not loop.alone else WAYS[1:]:
        advance(f"{loop.name}: {way}")
        settings = {"part": "loops", "loop": loop.name, "way": way}
        run = partial(_asked, judge, loop, way)
        found[way] = kept(options, f"trust-{loop.name}-{way}", settings, run)
    return found


def _judge() -> Any:
    """Make the judge in the process that runs the loops, which loads TensorFlow for it."""
    from experiments.loops.judge import Judge

    return Judge()


def _asked(judge: Measurer, loop: Loop, way: str) -> Facts:
    found = judge.ask(way, loop.name)
    if "skipped" in found:
        return {"failed": found["detail"]}
    kept_facts = {key: value for key, value in found.items() if key != "journal"}
    return {**kept_facts, "broken": broken(loop, found)}


def broken(loop: Loop, found: Facts) -> Sequence[str]:
    """A line for each way in which the loop breaks the contract."""
    wrong = []
    if loop.alone and (found["placed"] or not all(loop.alone in why for why in found["alone"])):
        wrong.append(f"it should be left alone because it {loop.alone}")
    if loop.alone and len(found["alone"]) != loop.steps:
        wrong.append(f"{len(found['alone'])} of its {loop.steps} steps were left alone")
    if not loop.alone and (found["alone"] or not found["placed"]):
        wrong.append(f"it was not placed: {found['alone']}")
    if loop.random and found["repeated"]:
        wrong.append(f"{found['repeated']} draws of its noise were drawn before")
    return wrong


def _part(options: BenchOptions, name: str, of: str, **settings: Any) -> Facts:
    """Run one part in its own process."""
    run = partial(facts_alone, run_part, name, settings, seconds=600.0)
    return kept(options, "-".join(filter(None, ("trust", name, of))), {"part": name, **settings}, run)


def run_part(name: str, settings: dict[str, Any]) -> Facts:
    """Run the part in this process. Loads only the part's own module, and TensorFlow if the module needs it."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    module, function = {
        "reads": ("reading", "read_facts"),
        "pace": ("pace", "pace_facts"),
        "growth": ("growth", "growth_facts"),
    }[name]
    found: Facts = getattr(import_module(f"experiments.benches.trust.{module}"), function)(**settings)
    return found
