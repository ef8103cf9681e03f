"""How few measured mappings, and seconds, each searcher needs to come near the best known."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from statistics import mean

from experiments.benches.bench import BenchOptions, Facts
from experiments.benches.comparisons import comparisons, terms
from experiments.benches.intervals import of_mean
from experiments.benches.taken_options import Takes
from experiments.jobs.search.compare import MARKS
from search.defaults import DEFAULT_SEARCHER

AT = MARKS
AFTER_S = (10, 30, 60)  # seconds of a searcher's own asking and measuring
NEAR = 0.05
TAKES = Takes(workers=True, runs=True)


def bench_facts(options: BenchOptions) -> Facts:
    """The gaps to the best known after AT measured mappings."""
    by_model = {name: _network(runs) for name, runs in comparisons(options).items()}
    ours = [rows_by_searcher(row, DEFAULT_SEARCHER).get(DEFAULT_SEARCHER, []) for row in by_model.values()]
    known = [row["gap_at_20"] for rows in ours for row in rows if row["gap_at_20"] is not None]
    means = {str(count): over_networks(ours, f"gap_at_{count}") for count in AT}
    return {
        "gap_at_20": max(known, default=None),
        "mean_gaps": {count: mean(gaps) if gaps else None for count, gaps in means.items()},
        "mean_gap_intervals": {count: of_mean(gaps) for count, gaps in means.items()},
        "by_model": by_model,
        "measured_again_at": list(MARKS),
        **terms(options),
    }


def rows_by_searcher(network: Facts, searcher: str) -> dict[str, list[Facts]]:
    """{searcher: its rows, one for each seed} of a network, `searcher` first; empty if the network was not searched.

    searcher: the one whose figures are in the network's row itself.
    """
    if "regret" not in network:
        return {}
    others = network.get("seeds", {}).values()
    first = {searcher: network, **network["searchers"]}
    return {name: [row, *(rows[name] for rows in others if name in rows)] for name, row in first.items()}


def over_networks(networks: Iterable[Iterable[Facts]], key: str) -> list[float]:
    """The mean over seeds of the figure `key`, for each network that has it. networks: of each, a row for each seed."""
    known = [[row[key] for row in rows if row.get(key) is not None] for rows in networks]
    return [mean(values) for values in known if values]


def _network(runs: Mapping[int, Facts]) -> Facts:
    """The facts of one network: all of its first comparison, and the gaps of comparisons with other seeds."""
    failed = next((facts["failed"] for facts in runs.values() if "failed" in facts), None)
    if failed is not None:
        return {"failed": failed}
    first, *others = runs.values()
    seeds = {str(facts["seed"]): {name: _brief(row) for name, row in _rows(facts).items()} for facts in others}
    return {**gaps(first), **({"seeds": seeds} if seeds else {})}


def gaps(facts: Facts) -> Facts:
    """The gaps of one comparison after 5, 10 and 20 measured mappings, or after the last one; and when the gap first
    was within NEAR, if it also was at the end.
    """
    rows = _rows(facts)
    ours = rows.get(facts["default_searcher"])
    return {
        **(ours or {}),
        "best_known_s": facts["best_known_s"],
        "fastest_by": facts["best"]["by"],
        "longer": facts["longer"],
        "searchers": {name: row for name, row in rows.items() if row is not ours},
    }


def _rows(facts: Facts) -> dict[str, Facts]:
    return {name: _gaps_of(row) for name, row in facts["searchers"].items()}


def _brief(row: Facts) -> Facts:
    return {name: fact for name, fact in row.items() if name != "regret"}


def _gaps_of(row: Facts) -> Facts:
    regret: list[float | None] = row["regret"]
    measured = len(regret) - 1
    first_near = next((i for i, gap in enumerate(regret) if is_near(gap)), None)
    return {
        **{f"gap_at_{count}": regret[min(count, measured)] for count in AT},
        **{f"gap_after_{seconds}_s": regret[bisect_right(row["at_s"], seconds)] for seconds in AFTER_S},
        "seconds": row["at_s"][-1] if row["at_s"] else 0.0,
        "gap": regret[-1],
        "near_after": first_near if is_near(regret[-1]) else None,
        "measured": measured,
        "regret": regret,
    }


def is_near(gap: float | None) -> bool:
    """Whether the gap to the best known is within NEAR; False if nothing ran."""
    return gap is not None and gap <= NEAR
