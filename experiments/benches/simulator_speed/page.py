"""The part of BENCHMARKS.md of the bench simulator-speed."""

from __future__ import annotations

from experiments.benches.bench import Facts
from experiments.benches.simulator_speed.run import DEVICES, EDGES, OPS
from experiments.report.text import markdown_table


def page_lines(facts: Facts) -> list[str]:
    """Speed by contention, HEFT by size, and the agreement of screening."""
    speeds = [
        [kind, *(_us(row[name]) for name in ("exact_us", "all_cores_us", "screen_us", "plain_us")),
         f"{row['plain_us']['median'] / row['exact_us']['median']:.0f}"]
        for kind, row in facts["by_contention"].items()
    ]  # fmt: skip
    schedulers = [
        [f"{int(ops):,}", *(f"{row[name]['median'] * 1e3:.2f} ms" for name in ("heft_s", "donf_s")),
         f"{row['tables_s'] * 1e3:.0f} ms"]
        for ops, row in facts["by_ops"].items()
    ]  # fmt: skip
    agreement = [
        [schedule, name, f"{row['kendall_tau']:.2f}", f"{row['top_1_in_top_10']:.0%}"]
        for schedule, rows in facts["screening"].items()
        for name, row in rows.items()
    ]
    return [
        f"Random layered graphs, {OPS:,} ops, {EDGES:,} edges, {DEVICES} devices, schedule `rank`, random mappings. "
        f"Microseconds a mapping: medians of {facts['repeats']} repeats in turn, with the interquartile range.",
        "",
        *markdown_table(
            ("contention", "exact, one core", f"exact, {facts['cores']} cores", "fixed order", "plain Python", "ratio"),
            speeds,
        ),
        "",
        f"All cores: {facts['mappings_per_s_1000']:,.0f} mappings/s. First makespan of a process: "
        f"{facts['first_makespan_s'] * 1e3:.0f} ms.",
        "",
        *markdown_table(("ops", "HEFT", "Donf", "tables from the graph"), schedulers, left=()),
        "",
        *markdown_table(
            ("schedule", "mappings", "Kendall tau of screening", "of the best 1 % in the screened best 10 %"),
            agreement,
            left=(0, 1),
        ),
    ]


def _us(spread: Facts) -> str:
    return f"{spread['median']:.1f} +- {spread['iqr']:.1f}"
