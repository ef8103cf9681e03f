"""The part of BENCHMARKS.md of the bench sample-efficiency."""

from __future__ import annotations

from experiments.benches.bench import Facts, ms
from experiments.benches.sample_efficiency.plot import PICTURE
from experiments.benches.sample_efficiency.run import AT, NEAR
from experiments.report.text import markdown_table, percent


def page_lines(facts: Facts) -> list[str]:
    """Ours after 5, 10 and 20, the others at their last measurement, and the picture."""
    models, worst = facts["by_model"], facts["gap_at_20"]
    peers = list(dict.fromkeys(name for row in models.values() for name in row.get("searchers", {})))
    heads = ["network", "best known", "fastest at the end by", *(f"after {count}" for count in AT)]
    return [
        f"How much slower the fastest mapping of `{facts['searcher']}` was than the best known of the comparison, "
        f"after 5, 10 and 20 measured mappings, the {facts['workers']} single devices aside; after its last, where it "
        "stopped before. For the other searchers, after their last measurement, with how many they had. The single "
        "devices count as every searcher's start. Best known is the fastest of the mappings that were measured side by "
        "side at the end: each searcher's fastest, and the next fastest of all. A mapping's figure is from there where "
        "it came so far, otherwise from its race, all in the time of one reference mapping; a race is short, so by it "
        "nothing counts as faster than the best known. The gap after a searcher's last measurement is that of what it "
        "would deliver, side by side with the best known. A gap of a percent or two is noise. These are the runs of "
        "search-quality.",
        "",
        *markdown_table(
            [*heads, f"within {NEAR:.0%} after", *peers],
            [_cells(name, row, peers) for name, row in models.items()],
            left=(0, 2),
        ),
        "",
        "No network was measured." if worst is None else f"Worst gap after 20: {worst:.1%}.",
        "",
        f"![Gap to the best known over measured mappings]({PICTURE})",
    ]


def _cells(name: str, row: Facts, peers: list[str]) -> list[str]:
    if "regret" not in row:
        return [f"`{name}`", row.get("failed") or "not searched"]
    return [
        f"`{name}`",
        ms(row["best_known_s"]),
        row["fastest_by"],
        *(percent(row[f"gap_at_{count}"]) for count in AT),
        "never" if row["near_after"] is None else str(row["near_after"]),
        *(_last(row["searchers"].get(peer)) for peer in peers),
    ]


def _last(row: Facts | None) -> str:
    return "-" if row is None else f"{percent(row['gap'])} ({row['measured']})"
