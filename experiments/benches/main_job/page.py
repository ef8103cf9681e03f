"""The part of BENCHMARKS.md of the bench main-job."""

from __future__ import annotations

from experiments.benches.bench import Facts, ms, ms_spread
from experiments.report.text import markdown_table

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
