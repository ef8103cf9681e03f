"""The main job on every zoo network: the delivered mapping against the best single device."""

from __future__ import annotations

import sys
from statistics import geometric_mean, median

from experiments import zoo
from experiments.benches.bench import BenchOptions, Facts, ms, ms_spread
from experiments.benches.process import command_facts
from experiments.benches.takes import Takes
from experiments.report.text import markdown_table

MEASUREMENTS = 24
KEPT = ("tf_default_s", "in_process_s", "lower_bound_s", "switch_s", "ops", "groups", "seconds")
KEPT_OF_BEST = ("ratio_to_best_single", "step_s", "spread_s", "repeats", "predicted_s", "searcher")
TAKES = Takes(workers=True)


def bench_facts(options: BenchOptions) -> Facts:
    """Each network is searched in a process of its own, as a user would, so that none inherits another's state."""
    per_model: dict[str, Facts] = {}
    measurements = options.measurements or MEASUREMENTS
    for name in options.models or zoo.names():
        found = command_facts("search", name, "--workers", str(options.workers), "--measurements", str(measurements))
        per_model[name] = row = _row(found)
        print(f"{name}: {row.get('failed') or '{:.2f}x'.format(row['ratio_to_best_single'])}", file=sys.stderr)
    ratios = [row["ratio_to_best_single"] for row in per_model.values() if "failed" not in row]
    switches = [row["switch_s"] for row in per_model.values() if row.get("switch_s")]
    return {
        "models": per_model,
        "geomean_ratio": geometric_mean(ratios) if ratios else None,
        "switch_s": per_model.get("inception_v3", {}).get("switch_s") or (median(switches) if switches else None),
        "workers": options.workers,
        "measurements": measurements,
    }


def _row(found: Facts) -> Facts:
    if "failed" in found:
        return found
    return {
        **{key: found["best"][key] for key in KEPT_OF_BEST},
        "best_single_s": found["best_single"]["step_s"],
        "best_single_spread_s": found["best_single"]["spread_s"],
        **{key: found[key] for key in KEPT},
        "measured": len(found["measured"]),
    }


HEADS = ("network", "best single device", "delivered", "ratio", "by", "predicted", "predicted bound",
         "in-process TensorFlow, all cores", "switch")  # fmt: skip


def page_lines(facts: Facts) -> list[str]:
    """The main job as a table: every figure of a row was measured side by side."""
    geomean = facts["geomean_ratio"]
    return [
        f"Delivered mapping on {facts['workers']} one-core worker processes against the best single worker, side by "
        f"side, after at most {facts['measurements']} measured mappings. Medians, with the interquartile range. The "
        "predicted bound is what no mapping can be predicted below; it rests on the costs that the search profiled, "
        "so a step measured minutes later may undercut it.",
        "",
        *markdown_table(HEADS, [_cells(name, row) for name, row in facts["models"].items()], left=(0, 4)),
        "",
        f"Geometric mean of the ratios: {geomean:.2f}." if geomean else "No network was measured.",
    ]


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
        f"{row['switch_s']:.2f} s",
    ]
