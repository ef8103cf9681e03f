"""How few measured mappings a search needs to come near the best known; made of the runs of search-quality."""

from __future__ import annotations

from pathlib import Path

from experiments.benches.bench import BenchOptions, Facts, ms
from experiments.benches.comparisons import MEASUREMENTS, PEER_MEASUREMENTS, comparisons
from experiments.benches.takes import Takes
from experiments.report.plots.regret import RegretCurve, RegretPanel, draw_regret
from experiments.report.text import markdown_table, percent
from search.offline.plan import DEFAULT_SEARCHER

AT = (5, 10, 20)
NEAR = 0.05
PICTURE = Path("docs/regret.png")
TAKES = Takes(workers=True, runs=True)


def bench_facts(options: BenchOptions) -> Facts:
    """Gaps to the best known after so many measured mappings."""
    by_model = {name: gaps(facts) for name, facts in comparisons(options).items()}
    known = [row["gap_at_20"] for row in by_model.values() if row.get("gap_at_20") is not None]
    return {
        "gap_at_20": max(known, default=None),
        "by_model": by_model,
        "searcher": DEFAULT_SEARCHER,
        "measurements": options.measurements or MEASUREMENTS,
        "peer_measurements": PEER_MEASUREMENTS,
        "workers": options.workers,
    }


def gaps(facts: Facts) -> Facts:
    """One comparison: after 5, 10 and 20 measured mappings, or the last one, and when the gap was first below NEAR."""
    if "failed" in facts:
        return {"failed": facts["failed"]}
    rows = {name: _gaps_of(row["regret"]) for name, row in facts["searchers"].items()}
    ours = rows.get(facts["default_searcher"])
    return {
        **(ours or {}),
        "best_known_s": facts["best_known_s"],
        "fastest_by": facts["best"]["by"],
        "searchers": {name: row for name, row in rows.items() if row is not ours},
    }


def _gaps_of(regret: list[float | None]) -> Facts:
    measured = len(regret) - 1
    return {
        **{f"gap_at_{count}": regret[min(count, measured)] for count in AT},
        "gap": regret[-1],
        "near_after": next((i for i, r in enumerate(regret) if r is not None and r <= NEAR), None),
        "measured": measured,
        "regret": regret,
    }


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
        "side at the end: each searcher's fastest, and the next fastest of all. A mapping's figure is from there if "
        "it got that far, otherwise from its race, all scaled to one reference mapping; because a race is short, no "
        "figure from one counts as faster than the best known. The gap after a searcher's last measurement is that of "
        "the mapping it would deliver, measured side by side with the best known. A gap of a percent or two is "
        "noise. These are the runs of search-quality.",
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


def draw(facts: Facts, path: Path) -> None:
    """All networks that were measured in one picture. Raises PlacerError where the file cannot be written."""
    panels = []
    for network, row in facts["by_model"].items():
        if "regret" in row:
            peers = [RegretCurve(name, tuple(peer["regret"])) for name, peer in row["searchers"].items()]
            panels.append(
                RegretPanel(network, (RegretCurve(facts["searcher"], tuple(row["regret"]), ours=True), *peers))
            )
    if panels:
        draw_regret(panels, path)
