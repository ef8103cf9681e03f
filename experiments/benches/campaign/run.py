"""The run of all questions about campaigns, one after another."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from experiments.benches.bench import BenchOptions, Facts
from experiments.benches.campaign import kills, report, speed, warm_start
from experiments.benches.campaign.kills import kill_facts
from experiments.benches.campaign.report import report_facts
from experiments.benches.campaign.speed import speed_facts
from experiments.benches.campaign.warm_start import warm_start_facts
from experiments.benches.process import tried
from experiments.benches.taken_options import Takes

TAKES = Takes(models=None)
KILLS = 100


def bench_facts(options: BenchOptions) -> Facts:
    """Return all figures, and as `missing` the parts that failed. options.measurements: how many times to kill."""
    facts = speed_facts()  # first, because it needs an extra dependency, Ray
    asked: dict[str, Callable[[], Facts]] = {
        "kills": partial(kill_facts, options.measurements or KILLS),
        "report": report_facts,
        "warm start": warm_start_facts,
    }
    missing = dict[str, Facts]()
    for name, ask in asked.items():
        found = tried(ask)
        if "failed" in found:
            missing[name] = found
        else:
            facts |= found
    seeds = sorted({seed for part in (kills, speed, report, warm_start) for seed in part.SEEDS})
    repeats = {"over Ray and without": speed.REPEATS, "report made and opened": report.REPEATS}
    return facts | {"missing": missing, "seeds": seeds, "repeats": repeats}
