"""What dividing ops brings: the zoo and a wide MLP, against whole ops and the best single device."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from math import inf
from statistics import geometric_mean

from experiments import zoo
from experiments.benches.bench import BenchOptions, Facts, ms, say
from experiments.benches.kept_runs import kept
from experiments.benches.process import facts_alone
from experiments.benches.splitting.measure import REPEATS, Wanted, measured
from experiments.benches.splitting.sameness import ROUNDED, STEPS, THREADS
from experiments.benches.taken_options import Takes

MEASUREMENTS = 24  # of each of the two searches, single devices included
MINUTES = 3.0  # after which no searcher asks for more; only networks that are slow to switch reach it
FIRST = ("wide_mlp", "vgg16", "resnet50", "mobilenet_v3", "transformer")  # each of these has a figure to reach
LIMIT_S = 1500.0  # within which one network must be done
HOW = 2  # version of the measuring; results of other versions are measured again
CERTAIN = 2.0  # standard errors by which divided ops must be slower to count as slower
TAKES = Takes(workers=True, runs=True, minutes=True)


def bench_facts(options: BenchOptions) -> Facts:
    """Measure each network in its own process. With --runs, no network is measured twice.

    --minutes: no network is begun after these.
    """
    models = options.models or tuple(dict.fromkeys((*FIRST, *zoo.names())))
    until_s = inf if options.minutes is None else time.perf_counter() + 60 * options.minutes
    by_model: dict[str, Facts] = {}
    for name in models:
        wanted = Wanted(name, f"workers:{options.workers}", options.measurements or MEASUREMENTS, MINUTES)
        settings = {
            "model": name,
            "workers": options.workers,
            "measurements": wanted.measurements,
            "minutes": MINUTES,
            "repeats": wanted.repeats,
            "steps": wanted.steps,
            "how": HOW,
        }
        by_model[name] = facts = kept(options, f"splitting/{name}", settings, partial(_measured, wanted, until_s))
        say(f"{name}: {_outcome(facts)}")
    return {
        **summed_up(by_model),
        "workers": options.workers,
        "measurements": options.measurements or MEASUREMENTS,
        "minutes": MINUTES,
        "repeats": REPEATS,
        "steps": STEPS,
        "seeds": [0],
    }


def summed_up(by_model: dict[str, Facts]) -> Facts:
    """The figures of all networks together; None if no network was measured."""
    fine = {name: row for name, row in by_model.items() if "failed" not in row}
    same = [row["sameness"] for row in fine.values() if row["sameness"]]
    gradients = [found["gradient_rel_err"] for found in same if found["gradient_rel_err"] is not None]
    strays = [stray for found in same if (stray := _stray(found)) is not None]
    return {
        "geomean_ratio": _mean(row["ratio_to_best_single"] for row in fine.values()),
        "geomean_off": _mean(row["off_to_best_single"] for row in fine.values()),
        "geomean_on_vs_off": _mean(row["ratio_on_vs_off"] for row in fine.values()),
        "slower": [name for name, row in fine.items() if is_slower(row)],
        "worst_loss_rel_err": max((found["loss_rel_err"] for found in same), default=None),
        "worst_gradient_rel_err": max(gradients, default=None),
        "worst_drift": max(strays, default=None),
        "by_model": by_model,
    }


def _stray(found: Facts) -> float | None:
    """The drift of the divided training divided by that of the whole one from itself; None if the whole has none."""
    own = max((found[f"drift_{name}"] or 0.0 for name in (THREADS, ROUNDED)), default=0.0)
    return found["drift"] / own if own else None


def is_slower(row: Facts) -> bool:
    """Whether the step delivered if ops may be divided is slower than without, beyond the error of the ratio."""
    return bool(row["ratio_on_vs_off"] + CERTAIN * row["on_vs_off_error"] < 1)


def _measured(wanted: Wanted, until_s: float) -> Facts:
    if time.perf_counter() > until_s:
        return {"failed": "not reached: no time was left"}
    return facts_alone(measured, wanted, seconds=LIMIT_S)


def _mean(ratios: Iterable[float]) -> float | None:
    found = list(ratios)
    return geometric_mean(found) if found else None


def _outcome(facts: Facts) -> str:
    if "failed" in facts:
        return str(facts["failed"])
    how = f"divided ({facts['policy']})" if facts["delivers_divided"] else "whole"
    return (
        f"{facts['ratio_to_best_single']:.2f}x the best single device ({ms(facts['best_single_s'])}), "
        f"{facts['off_to_best_single']:.2f}x without dividing; delivered {how}, in {facts['seconds']:.0f} s"
    )
