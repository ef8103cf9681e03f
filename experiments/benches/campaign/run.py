"""All that is asked of campaigns, one question after another."""

from __future__ import annotations

from experiments.benches.bench import BenchOptions, Facts
from experiments.benches.campaign.kills import kill_facts
from experiments.benches.campaign.report import report_facts
from experiments.benches.campaign.speed import speed_facts
from experiments.benches.campaign.warm_start import warm_start_facts
from experiments.benches.takes import Takes

TAKES = Takes(models=None)
KILLS = 100


def bench_facts(options: BenchOptions) -> Facts:
    """All figures. options.measurements: how many times to kill."""
    speed = speed_facts()  # first, because it needs an extra
    return {**kill_facts(options.measurements or KILLS), **speed, **report_facts(), **warm_start_facts()}
