"""The table of plans in BENCHMARKS.md."""

from __future__ import annotations

from experiments.benches.bench import Facts
from experiments.report.text import markdown_table

HEADS = ("graph", "GPUs (or CPUs)", "objective", "memory")


def page_lines(facts: Facts) -> list[str]:
    """Each case by objective, and the worst beside what others found."""
    seconds = facts["seconds"]
    return [
        f"Model only: the value of the plan that `hybrid` hands over after {_listed(seconds)} seconds, over a lower "
        "bound that no mapping can be below; so 1 may be out of reach. Beside it the best of the list schedulers, of "
        f"`local` in {facts['peer_seconds']} seconds and, for max-load, of cuts of a line of ops into one stretch a "
        "device (an exact dynamic program). Graphs named by a number are made by rule, as large networks look; the "
        "others are steps of the zoo with a GPU's costs by FLOPs and bytes. Tight: all GPUs together hold 1.35 times "
        "what the graph needs, beside a CPU that holds everything and is 20 times slower.",
        "",
        *markdown_table(
            (*HEADS, *(f"{s} s" for s in seconds), "best of the others", "judged/s"),
            [_cells(row, seconds) for row in facts["cases"]],
        ),
        "",
        f"At the worst, the plan after 10 seconds is {facts['worst_vs_peer']:.3f} of the best of the others. A first "
        f"mapping is there after {facts['median_first_s'] * 1e3:.0f} ms (median; HEFT, its tables included)."
        + _budgets(facts),
    ]


def _budgets(facts: Facts) -> str:
    """How long the searches that are compared took at the most; empty for a record that does not have it."""
    took = [row["took_s"] for row in facts["cases"] if "took_s" in row]
    if not took:
        return ""
    hybrid_s, local_s = (max(seconds[name] for seconds in took) for name in ("hybrid_10s", "local"))
    return f" Of the 10 seconds, `hybrid` took at most {hybrid_s:.1f} s and `local` {local_s:.1f} s."


def _cells(row: Facts, seconds: list[int]) -> list[str]:
    if "failed" in row:
        return [f"`{row['case']}`", f"failed: {row['failed']}"]
    return [
        f"`{row['graph']}` ({row['ops']:,} ops)",
        f"{row['devices']}",
        row["objective"],
        "tight" if row["tight"] else "",
        *(f"{row[f'over_bound_{s}s']:.3f}" for s in seconds),
        f"{row['best_peer']:.3f} ({row['best_peer_name']})",
        f"{row['evaluations_per_s']:,.0f}",
    ]


def _listed(seconds: list[int]) -> str:
    return f"{', '.join(map(str, seconds[:-1]))} and {seconds[-1]}"
