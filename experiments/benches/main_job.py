"""The main job on every zoo network: the delivered mapping against the best single device."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from statistics import geometric_mean, median

from experiments import zoo
from experiments.benches.bench import BenchOptions, Facts, ms, ms_spread
from experiments.benches.kept_runs import kept
from experiments.benches.process import command_facts
from experiments.benches.takes import Takes
from experiments.report.text import markdown_table

MEASUREMENTS = 24
LIMIT_S = 3600.0  # for one network, which takes minutes
NEAR = 1.05  # a mapping is nearly the best if it takes so many times as long, or less, in its race
KEPT = ("tf_default_s", "in_process_s", "lower_bound_s", "switch_s", "ops", "groups")
KEPT_OF_BEST = ("ratio_to_best_single", "step_s", "spread_s", "repeats", "stopped_early", "predicted_s", "searcher")
TAKES = Takes(workers=True, runs=True)


def bench_facts(options: BenchOptions) -> Facts:
    """Each network is searched in a process of its own, as a user would, so that none inherits another's state.

    With --runs, none is searched twice.
    """
    per_model: dict[str, Facts] = {}
    measurements = options.measurements or MEASUREMENTS
    for name in options.models or zoo.names():
        settings = {"model": name, "workers": options.workers, "measurements": measurements}
        search = partial(_searched, name, options.workers, measurements)
        per_model[name] = row = kept(options, f"main-job/{name}", settings, search)
        print(f"{name}: {row.get('failed') or '{:.2f}x'.format(row['ratio_to_best_single'])}", file=sys.stderr)
    switches = [row["switch_s"] for row in per_model.values() if row.get("switch_s")]
    return {
        "models": per_model,
        "geomean_ratio": _mean(per_model, "ratio_to_best_single"),
        "geomean_to_untouched": _mean(per_model, "ratio_to_untouched"),
        "switch_s": per_model.get("inception_v3", {}).get("switch_s") or (median(switches) if switches else None),
        "workers": options.workers,
        "measurements": measurements,
    }


def _mean(per_model: dict[str, Facts], ratio: str) -> float | None:
    """The geometric mean over the networks that were searched; None where none was."""
    found = [row[ratio] for row in per_model.values() if "failed" not in row]
    return geometric_mean(found) if found else None


def _searched(name: str, workers: int, measurements: int) -> Facts:
    options = ("--workers", str(workers), "--measurements", str(measurements))
    found = command_facts("search", name, *options, seconds=LIMIT_S)
    if "failed" not in found and found["best_single"] is None:
        return {"failed": "no single device ran it, so that there is no ratio"}
    return found if "failed" in found else _row(found)


def _row(found: Facts) -> Facts:
    return {
        **{key: found["best"][key] for key in KEPT_OF_BEST},
        "best_single_s": found["best_single"]["step_s"],
        "best_single_spread_s": found["best_single"]["spread_s"],
        **{key: found[key] for key in KEPT},
        "ratio_to_untouched": found["in_process_s"] / found["best"]["step_s"],
        "answer_s": found["seconds"],
        "near_s": _near_s(found["measured"]),
        "measured": len(found["measured"]),
    }


def _near_s(rows: Sequence[Facts]) -> float:
    """Seconds until a mapping had been measured that was nearly as fast as the fastest, both in their races."""
    ran = [row for row in rows if row["step_s"] is not None]
    best_s: float = min(row["step_s"] for row in ran)
    near_s: float = min(row["at_s"] for row in ran if row["step_s"] <= NEAR * best_s)
    return near_s


HEADS = ("network", "best single device", "delivered", "ratio", "by", "predicted", "predicted bound",
         "in-process TensorFlow, all cores", "ratio to that", "switch", "answer", "within 5 % of it")  # fmt: skip


def page_lines(facts: Facts) -> list[str]:
    """The main job as a table: the delivered mapping and the best single device of a row were stepped side by side."""
    geomean, to_untouched = facts["geomean_ratio"], facts.get("geomean_to_untouched")
    return [
        f"Delivered mapping on {facts['workers']} one-core worker processes against the best single worker, side by "
        f"side, after at most {facts['measurements']} measured mappings. Medians, with the interquartile range. The "
        "predicted bound is what no mapping can be predicted below; it rests on the costs that the search profiled, "
        "so a step measured minutes later may undercut it. *In-process*: the step as TensorFlow runs it on all cores, "
        "timed before the workers were started. *Answer*: seconds until the search was over, tracing and profiling "
        "included. *Within 5 %*: until a mapping had been measured whose race took at most 5 % longer than the "
        "fastest one's. What is delivered is the fastest of the single device and up to four other mappings by these "
        "same steps, which favours it a little where they are close; where it is the single device, the ratio is 1.00.",
        "",
        *markdown_table(HEADS, [_cells(name, row) for name, row in facts["models"].items()], left=(0, 4)),
        "",
        f"Geometric mean of the ratios over {_counted(facts['models'])}: {geomean:.2f}."
        if geomean
        else "No network was measured.",
        *([f"To in-process TensorFlow on all cores: {to_untouched:.2f}."] if to_untouched else []),
    ]


def _counted(models: dict[str, Facts]) -> str:
    """How many networks the geometric means are of."""
    searched = sum("failed" not in row for row in models.values())
    return f"{searched} networks" if searched == len(models) else f"{searched} of {len(models)} networks"


def _cells(name: str, row: Facts) -> list[str]:
    if "failed" in row:
        return [f"`{name}`", f"failed: {row['failed']}"]
    return [
        f"`{name}`",
        ms_spread(row["best_single_s"], row["best_single_spread_s"]),
        ms_spread(row["step_s"], row["spread_s"]),
        f"{row['ratio_to_best_single']:.2f}",
        row["searcher"],
        ms(row["predicted_s"]),
        "not recorded" if row["lower_bound_s"] is None else ms(row["lower_bound_s"]),
        ms(row["in_process_s"]),
        f"{row['in_process_s'] / row['step_s']:.2f}",
        "not measured" if row["switch_s"] is None else f"{row['switch_s']:.2f} s",
        f"{row.get('answer_s', row.get('seconds')):.0f} s",
        f"{row['near_s']:.0f} s" if "near_s" in row else "not recorded",
    ]
