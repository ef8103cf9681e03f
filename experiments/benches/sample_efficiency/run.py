"""How few measured mappings a search needs to come near the best known; made of the runs of search-quality."""

from __future__ import annotations

from experiments.benches.bench import BenchOptions, Facts
from experiments.benches.comparisons import MEASUREMENTS, PEER_MEASUREMENTS, comparisons
from search.offline.plan import DEFAULT_SEARCHER

AT = (5, 10, 20)
NEAR = 0.05


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
