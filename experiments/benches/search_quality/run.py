"""How good the mappings that a search delivers are: against single devices, every other searcher, and small spaces of
mappings that can be enumerated.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import geometric_mean

from experiments.benches.bench import BenchOptions, Facts
from experiments.benches.comparisons import comparisons, terms
from experiments.benches.intervals import of_geomean
from experiments.benches.search_quality.enumerated import enumerated
from experiments.benches.taken_options import Takes

KEPT = ("step_s", "spread_s", "repeats", "ratio_to_best_single", "measured", "asking_s", "ended")
OF_SEEDS = ("ratio_to_best_single", "vs_peer", "best_peer", "step_s", "in_process_s")  # kept of each seed
TAKES = Takes(workers=True, runs=True)


def bench_facts(options: BenchOptions) -> Facts:
    """Compare searchers and enumerate spaces. A network's figures are from the side-by-side end of its comparison."""
    by_model = {name: _network(runs) for name, runs in comparisons(options).items()}
    spaces = enumerated(options)
    peers = [row["vs_peer"] for rows in by_seed(by_model) for row in rows if row["vs_peer"]]
    ratios, untouched = single_ratios(by_model), untouched_ratios(by_model)
    gaps = [space["gap"] for space in spaces.values() if "failed" not in space]
    return {
        "geomean_ratio": geometric_mean(ratios) if ratios else None,
        "geomean_interval": of_geomean(ratios),
        "geomean_to_untouched": geometric_mean(untouched) if untouched else None,
        "geomean_to_untouched_interval": of_geomean(untouched),
        "worst_vs_peer": min(peers, default=None),
        "gap_to_enumerated": max(gaps, default=None),
        "by_model": by_model,
        "enumerated": spaces,
        **terms(options),
    }


def by_seed(by_model: Mapping[str, Facts]) -> list[list[Facts]]:
    """The rows of each network that was compared, one for each seed."""
    fine = [row for row in by_model.values() if "failed" not in row]
    return [list(row["by_seed"].values()) if "by_seed" in row else [row] for row in fine]


def single_ratios(by_model: Mapping[str, Facts]) -> list[float]:
    """How many times as fast as the best single device each network is: the geometric mean over its seeds."""
    of_seeds = by_seed(by_model)
    known = [[row["ratio_to_best_single"] for row in rows if row["ratio_to_best_single"]] for rows in of_seeds]
    return [geometric_mean(ratios) for ratios in known if ratios]


def untouched_ratios(by_model: Mapping[str, Facts]) -> list[float]:
    """How many times as fast as TensorFlow alone on all cores each network is: the geometric mean over its seeds."""
    return [geometric_mean(row["in_process_s"] / row["step_s"] for row in rows) for rows in by_seed(by_model)]


def vs_peer(peer_s: float | None, single_s: float | None, delivered_s: float) -> float | None:
    """How many times as fast the delivered mapping is as the best peer's would be; None if no peer's mapping ran."""
    return min(peer_s, single_s or peer_s) / delivered_s if peer_s else None


def _network(runs: Mapping[int, Facts]) -> Facts:
    """The facts of one network: all of its first comparison, and the ratios of each seed if there are several."""
    rows = {seed: judged(facts) for seed, facts in runs.items()}
    failed = next((row for row in rows.values() if "failed" in row), None)
    if failed is not None:
        return failed
    seeds = {str(seed): {key: row[key] for key in OF_SEEDS} for seed, row in rows.items()}
    return {**next(iter(rows.values())), **({"by_seed": seeds} if len(rows) > 1 else {})}


def judged(facts: Facts) -> Facts:
    """The figures of one comparison. The default searcher delivers its fastest mapping, or the best single device if
    that is faster, as at the end of a search. Peers are the other searchers, which would deliver that device, too.
    """
    if "failed" in facts:
        return {"failed": facts["failed"]}
    rows, single = facts["searchers"], facts["best_single"]
    ours = rows.get(facts["default_searcher"])
    ran = [row for row in (ours, single) if row and row["step_s"]]
    if not ran:
        return {"failed": f"neither a single device nor a mapping of {facts['default_searcher']} ran"}
    delivered = min(ran, key=lambda row: row["step_s"])
    peers = {name: row for name, row in rows.items() if row is not ours and row["step_s"]}
    peer = min(peers, key=lambda name: peers[name]["step_s"], default=None)
    peer_s = peers[peer]["step_s"] if peer else None
    return {
        "ratio_to_best_single": single["step_s"] / delivered["step_s"] if single else None,
        "step_s": delivered["step_s"],
        "spread_s": delivered["spread_s"],
        "repeats": delivered["repeats"],
        "delivers_single": delivered is single,
        "best_single_s": single["step_s"] if single else None,
        "best_single_spread_s": single["spread_s"] if single else None,
        "best_peer": peer,
        "best_peer_s": peer_s,
        "vs_peer": vs_peer(peer_s, single["step_s"] if single else None, delivered["step_s"]),
        "best_known_s": facts["best_known_s"],
        "longer": facts["longer"],
        "lower_bound_s": facts["lower_bound_s"],
        "in_process_s": facts["in_process_s"],
        "measured": facts["measured"],
        "seconds": facts["seconds"],
        "searchers": {name: {key: row[key] for key in KEPT} for name, row in rows.items()},
    }
