"""The table of plans in BENCHMARKS.md."""

from __future__ import annotations

from collections import Counter
from statistics import geometric_mean

from experiments.benches.bench import Facts
from experiments.benches.intervals import geomean_in_words
from experiments.report.text import markdown_table

QUESTION = "Before anything is measured, how good are plans for large graphs beside those of other methods?"
EQUAL = 0.001  # values that differ by at most this share are called equal
HEADS = ("graph", "GPUs (or CPUs)", "objective", "memory")


def headline(facts: Facts) -> str:
    """How plans compare with the best of the other methods."""
    ratios = [ratio for those in _beside(facts).values() for ratio in those]
    better, worse = sum(ratio < 1 - EQUAL for ratio in ratios), sum(ratio > 1 + EQUAL for ratio in ratios)
    return (
        f"plans after 10 s are better than those of the best other method on {better} of {len(ratios)} cases, equal "
        f"within {EQUAL:.1%} on {len(ratios) - better - worse}, worse on {worse} (wanted: none); value as a share of "
        f"the best other's: {_in_words(facts)}"
    )


def _beside(facts: Facts) -> dict[str, list[float]]:
    """The value of each plan after 10 seconds divided by the best of the other methods for the same case, by graph."""
    found: dict[str, list[float]] = {}
    for row in facts["cases"]:
        if "failed" not in row:
            found.setdefault(row["graph"], []).append(row["over_bound_10s"] / row["best_peer"])
    return found


def _in_words(facts: Facts) -> str:
    """The mean over graphs. A graph with several rows counts by their mean."""
    return geomean_in_words([geometric_mean(ratios) for ratios in _beside(facts).values()])


def _by_peer(facts: Facts) -> str:
    """How often each of the other methods was the best of them; named because one of them is Placer's own, too."""
    best = Counter(row["best_peer_name"] for row in facts["cases"] if "failed" not in row)
    named = ", ".join(f"`{name}` {count} times" for name, count in best.most_common())
    return f"; the best other was {named} (`local` is Placer's own, too)"


def _worst(ratio: float) -> str:
    return f"{ratio - 1:.1%} slower" if ratio > 1 else f"{1 - ratio:.1%} faster"


def page_lines(facts: Facts) -> list[str]:
    """Each case by objective, and the worst case compared with the other methods."""
    seconds = facts["seconds"]
    return [
        f"Model only: the value of the plan that `hybrid` hands over after {_listed(seconds)} seconds, over a lower "
        "bound that no mapping can be below; so 1 may be out of reach. Beside it the best of the list schedulers, of "
        f"`local` in {facts['peer_seconds']} seconds and, for max-load, of cuts of a line of ops into one stretch a "
        "device (an exact dynamic program). Graphs named by a number are made by rule, as large networks look; the "
        "others are steps of the zoo with a GPU's costs by FLOPs and bytes. One run each, with one seed. Tight: all "
        "GPUs together hold 1.35 times "
        "what the graph needs, beside a CPU that holds everything and is 20 times slower.",
        "",
        *markdown_table(
            (*HEADS, *(f"{s} s" for s in seconds), "best of the others", "judged/s"),
            [_cells(row, seconds) for row in facts["cases"]],
        ),
        "",
        f"Value of the plan after 10 seconds as a share of the best other's, geometric mean over the graphs: "
        f"{_in_words(facts)}{_by_peer(facts)}. On the worst case it is "
        f"{_worst(facts['worst_vs_peer'])} than the best "
        f"other method. A first mapping is there after {facts['median_first_s'] * 1e3:.0f} ms (median; HEFT, its "
        "tables included). Memory limits are those of `placer plan`: they hold for variables only (`memory_bytes` of "
        "ops), not for what a step keeps meanwhile." + _budgets(facts),
    ]


def _budgets(facts: Facts) -> str:
    """How long the compared searches took at most; empty for a record without these times."""
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
