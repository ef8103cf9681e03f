"""The README quotes no figure of a benchmark that its record does not hold."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median

from experiments.benches.gpu.figures import is_on_one, with_ratio
from experiments.benches.intervals import of_geomean
from experiments.benches.main_job.run import single_ratios
from experiments.benches.online.judge import BY_CLOCK, BY_MAPPING, steps_to_recover
from experiments.benches.online.loads_page import recoveries
from experiments.benches.online.neighbours import GROWS_S, LOADS

HOME = Path(__file__).parents[2]
GAINS = (HOME / "README.md").read_text().split("## What it gains")[1].split("\n## ")[0]
RECORD = json.loads((HOME / "benchmarks" / "main-job.json").read_text())
ELSEWHERE = RECORD["elsewhere"]
TRUST = json.loads((HOME / "benchmarks" / "trust.json").read_text())
GPU = json.loads((HOME / "benchmarks" / "gpu.json").read_text())
ONLINE = json.loads((HOME / "benchmarks" / "online.json").read_text())
MEASURED = {name: row for name, row in RECORD["models"].items() if "failed" not in row}


def test_its_table_is_the_record() -> None:
    quoted = dict(re.findall(r"\| `(\w+)` \| ([\d.]+) ", GAINS))
    assert quoted == {name: f"{row['ratio_to_best_single']:.2f}" for name, row in MEASURED.items()}


def test_its_sentences_are_the_record() -> None:
    assert f"({RECORD['date']}, " in GAINS
    assert f"geometric mean, twelve networks | {RECORD['geomean_ratio']:.2f} |" in GAINS and len(MEASURED) == 12
    beaten = sum(row["ratio_to_untouched"] < 1 for row in MEASURED.values())
    assert ("timed minutes earlier" in " ".join(GAINS.split())) == any(
        "in_turn" not in row for row in MEASURED.values()
    )
    to_untouched = f"{RECORD['geomean_to_untouched']:.2f}"
    said = " ".join(GAINS.split())
    low, high = of_geomean(single_ratios(RECORD["models"]))
    assert f"is {low:.2f} to {high:.2f};" in said
    low, high = of_geomean([row["ratio_to_untouched"] for row in MEASURED.values()])
    assert f"(95 % interval {low:.2f} to {high:.2f}; both trained in turn)" in said
    assert all(
        f"on two cores of an {at['machine']['cpu']} it was {at['geomean_ratio']:.2f}" in said for at in ELSEWHERE
    )
    assert f"On {beaten} of the {len(MEASURED)} networks" in said and f"a geometric mean of {to_untouched}" in said


def test_what_wrapping_costs_is_the_record() -> None:
    paces = [pace for pace in TRUST["paces"].values() if all(state.endswith(": untouched") for state in pace["ended"])]
    ratios = [pace["ratio"] for pace in paces]
    said = " ".join((HOME / "README.md").read_text().split())
    assert f"the {len(paces)} loops that ended untouched" in said
    assert f"took {median(ratios):.2f} times as long as unwrapped in the median" in said
    assert f"and {max(ratios):.2f} times at the worst" in said


def test_what_watching_costs_and_finds_is_the_record() -> None:
    said, loads = " ".join(GAINS.split()), ONLINE["loads"]
    (there, soon), (clocked, at_once) = (recoveries(loads, "landed", by) for by in (BY_MAPPING, BY_CLOCK))
    assert f"watching for changes made small steps {ONLINE['overhead']:.1%} longer".replace("%", " %") in said
    left = len(steps_to_recover(loads, "landed"))
    assert f"Of {len(loads)} loads that landed on a training, {left} left something to recover." in said
    grown = [row for row in loads if LOADS[row["load"]].grows_s]
    _, soon_grown = recoveries(grown, "landed", BY_MAPPING)
    assert f"After {there} of these, a mapping" in said
    assert f"after {soon} within 30 steps, {soon_grown} of which had grown for {GROWS_S:.0f} seconds before" in said
    assert f"By the clock alone, which such loads disturb, it was {clocked} and {at_once}." in said


def test_what_a_gpu_gains_and_costs_is_the_record() -> None:
    said = " ".join((HOME / "README.md").read_text().split())
    cost, networks = GPU["autoplace"], with_ratio(GPU["models"])
    missing = len(GPU["models"]) - len(networks) + len(GPU["not_reached"])
    overhead = f"{cost['overhead_total']:.1%}".replace("%", " %")
    assert f"a call of `autoplace` cost {overhead} of a step of {cost['bare_s'] * 1e3:.0f} ms" in said
    assert f"{len(networks)} networks were measured ({missing} of {missing + len(networks)} tasks were not)" in said
    (name,) = (name for name, row in networks.items() if not is_on_one(row))
    assert f"`{name}`" in said and f"{networks[name]['ratio_to_best_single']:.2f} times as fast as on the bet" in said


def test_what_dividing_may_cost_is_the_record() -> None:
    said = " ".join((HOME / "docs" / "guide.md").read_text().split())
    record = json.loads((HOME / "benchmarks" / "splitting.json").read_text())
    losses = [1 - record["by_model"][name]["ratio_on_vs_off"] for name in record["slower"]]
    count = sum("failed" not in row for row in record["by_model"].values())
    slower = f"{100 * min(losses):.0f} to {100 * max(losses):.0f} % slower than those of `off`"
    assert f"{slower} on {len(losses)} of {count} networks" in said
