"""The main job on every zoo network: the delivered mapping against the best single device."""

from __future__ import annotations

import sys
from statistics import geometric_mean, median

from experiments import zoo
from experiments.benches.bench import BenchOptions, Facts, in_process

MEASUREMENTS = 24


def run(options: BenchOptions) -> Facts:
    """Each network is searched in a process of its own, as a user would, so that none inherits another's state."""
    per_model: dict[str, Facts] = {}
    measurements = options.measurements or MEASUREMENTS
    for name in options.models or zoo.names():
        facts = in_process("search", name, "--workers", str(options.workers), "--measurements", str(measurements))
        per_model[name] = _main_job_row(facts)
        ratio = per_model[name].get("ratio_to_best_single")
        print(f"{name}: {facts.get('failed') or f'{ratio:.2f}x'}", file=sys.stderr)
    ratios = [row["ratio_to_best_single"] for row in per_model.values() if "failed" not in row]
    switches = [row["switch_s"] for row in per_model.values() if row.get("switch_s")]
    return {
        "models": per_model,
        "geomean_ratio": geometric_mean(ratios) if ratios else None,
        "switch_s": per_model.get("inception_v3", {}).get("switch_s") or (median(switches) if switches else None),
        "workers": options.workers,
        "measurements": measurements,
    }


def _main_job_row(facts: Facts) -> Facts:
    if "failed" in facts:
        return {"failed": facts["failed"]}
    best, single = facts["best"], facts["best_single"]
    return {
        "ratio_to_best_single": best["ratio_to_best_single"],
        "step_s": best["step_s"],
        "spread_s": best["spread_s"],
        "best_single_s": single["step_s"],
        "best_single_spread_s": single["spread_s"],
        "repeats": best["repeats"],
        "tf_default_s": facts["tf_default_s"],
        "in_process_s": facts["in_process_s"],
        "predicted_s": best["predicted_s"],
        "lower_bound_s": facts["lower_bound_s"],
        "switch_s": facts["switch_s"],
        "searcher": best["searcher"],
        "measured": len(facts["measured"]),
        "ops": facts["ops"],
        "groups": facts["groups"],
        "seconds": facts["seconds"],
    }
