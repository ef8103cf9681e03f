"""The part of BENCHMARKS.md of the bench main-job."""

from __future__ import annotations

from experiments.benches.bench import Facts, ms
from experiments.report.text import markdown_table


def page(facts: Facts) -> list[str]:
    """The main job as a table: every figure of a row was measured side by side."""
    heads = ["network", "best single device", "delivered", "ratio", "by", "predicted", "predicted bound"]
    heads += ["in-process TensorFlow, all cores", "switch"]
    lines = [
        f"Delivered mapping on {facts['workers']} one-core worker processes against the best single worker, side by "
        f"side, after at most {facts['measurements']} measured mappings. Medians, with the interquartile range. The "
        "predicted bound is what no mapping can be predicted below; it rests on the costs that the search profiled, "
        "so a step measured minutes later may undercut it.",
        "",
        *markdown_table(heads, left=(0, 4)),
    ]
    for name, row in facts["models"].items():
        if "failed" in row:
            lines.append(f"| `{name}` | failed: {row['failed']} | | | | | | | |")
            continue
        bound = "not recorded" if row["lower_bound_s"] is None else ms(row["lower_bound_s"])
        single = f"{ms(row['best_single_s'])} +- {ms(row['best_single_spread_s'])}"
        found = f"{ms(row['step_s'])} +- {ms(row['spread_s'])}"
        lines.append(
            f"| `{name}` | {single} | {found} | {row['ratio_to_best_single']:.2f} | {row['searcher']} | "
            f"{ms(row['predicted_s'])} | {bound} | {ms(row['in_process_s'])} | "
            f"{row['switch_s']:.2f} s |"
        )
    geomean = facts["geomean_ratio"]
    lines += ["", f"Geometric mean of the ratios: {geomean:.2f}." if geomean else "No network was measured."]
    return lines
