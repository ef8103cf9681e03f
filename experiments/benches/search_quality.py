"""How good the mappings are that a search delivers: against single devices, against every other searcher, and against
all there are where they can be enumerated.
"""

from __future__ import annotations

from statistics import geometric_mean

from experiments.benches.bench import BenchOptions, Facts, ms
from experiments.benches.comparisons import MEASUREMENTS, PEER_MEASUREMENTS, comparisons
from experiments.benches.enumerated import BEST, DRAWN, REPEATS, enumerated
from search.offline.plan import DEFAULT_SEARCHER

KEPT = ("step_s", "spread_s", "repeats", "ratio_to_best_single", "measured", "asking_s", "ended")


def run(options: BenchOptions) -> Facts:
    """Every figure of a network was measured side by side at the end of its comparison."""
    by_model = {name: judged(facts) for name, facts in comparisons(options).items()}
    spaces = enumerated(options)
    fine = [row for row in by_model.values() if "failed" not in row]
    ratios = [row["ratio_to_best_single"] for row in fine if row["ratio_to_best_single"]]
    gaps = [space["gap"] for space in spaces.values() if "failed" not in space]
    return {
        "geomean_ratio": geometric_mean(ratios) if ratios else None,
        "worst_vs_peer": min((row["vs_peer"] for row in fine if row["vs_peer"]), default=None),
        "gap_to_enumerated": max(gaps, default=None),
        "by_model": by_model,
        "enumerated": spaces,
        "searcher": DEFAULT_SEARCHER,
        "measurements": options.measurements or MEASUREMENTS,
        "peer_measurements": PEER_MEASUREMENTS,
        "workers": options.workers,
    }


def judged(facts: Facts) -> Facts:
    """One comparison. What is delivered is the default searcher's fastest, or the best single device where that is
    faster, as at the end of a search; peers are the other searchers.
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
        "vs_peer": peer_s / delivered["step_s"] if peer_s else None,
        "lower_bound_s": facts["lower_bound_s"],
        "in_process_s": facts["in_process_s"],
        "measured": facts["measured"],
        "seconds": facts["seconds"],
        "searchers": {name: {key: row[key] for key in KEPT} for name, row in rows.items()},
    }


def page(facts: Facts) -> list[str]:
    """Against single devices and peers, each searcher's ratios, and the enumerated spaces."""
    return [*_against_peers(facts), "", *_all_searchers(facts), "", *_enumerated(facts)]


def _against_peers(facts: Facts) -> list[str]:
    lines = [
        f"What `{facts['searcher']}` delivers on {facts['workers']} one-core worker processes after at most "
        f"{facts['measurements']} measured mappings, the single devices aside, against the best single device and the "
        f"best of the other searchers, which had at most {facts['peer_measurements']} each. Networks are compared in "
        "processes of their own, all searchers on the same profile and their mappings measured in turn. The figures "
        "are from the end of the comparison, where the fastest mapping of each was stepped in turn with the others': "
        "medians with the interquartile range. *Against the peer* below 1 means that the peer's was faster; the "
        "fastest of many peers is a little flattered by noise.",
        "",
        "| network | best single device | delivered | ratio | best peer | its step | against the peer | "
        "predicted bound | measured | seconds |",
        "| --- | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |",
        *(_peer_line(name, row) for name, row in facts["by_model"].items()),
        "",
    ]
    geomean, worst = facts["geomean_ratio"], facts["worst_vs_peer"]
    if geomean:
        lines.append(f"Geometric mean of the ratios: {geomean:.2f}.")
    if worst:
        lines.append(f"Worst against a peer: {worst:.3f}.")
    return lines


def _peer_line(name: str, row: Facts) -> str:
    if "failed" in row:
        return f"| `{name}` | failed: {row['failed']} | | | | | | | | |"
    single = "" if row["best_single_s"] is None else f"{ms(row['best_single_s'])} +- {ms(row['best_single_spread_s'])}"
    ratio = "" if row["ratio_to_best_single"] is None else f"{row['ratio_to_best_single']:.2f}"
    peer = f"{row['best_peer']} | {ms(row['best_peer_s'])} | {row['vs_peer']:.3f}" if row["best_peer"] else "| |"
    delivered = f"{ms(row['step_s'])} +- {ms(row['spread_s'])}" + (" (single)" if row["delivers_single"] else "")
    end = f"{ms(row['lower_bound_s'])} | {row['measured']} | {row['seconds']:.0f}"
    return f"| `{name}` | {single} | {delivered} | {ratio} | {peer} | {end} |"


def _all_searchers(facts: Facts) -> list[str]:
    """Every searcher's fastest proposal as a multiple of the best single device's speed."""
    models = {name: row for name, row in facts["by_model"].items() if "failed" not in row}
    names = list(dict.fromkeys(s for row in models.values() for s in row["searchers"]))
    lines = [
        "Each searcher's fastest proposal, how many times faster than the best single device (below 1: slower), and "
        "how many mappings it had measured:",
        "",
        "| network | " + " | ".join(names) + " |",
        "| --- |" + " ---: |" * len(names),
    ]
    for model, row in models.items():
        cells = [_cell(row["searchers"].get(name)) for name in names]
        lines.append(f"| `{model}` | " + " | ".join(cells) + " |")
    return lines


def _cell(row: Facts | None) -> str:
    if not row or row["ratio_to_best_single"] is None:
        return "-"
    return f"{row['ratio_to_best_single']:.2f} ({row['measured']})"


def _enumerated(facts: Facts) -> list[str]:
    """What was enumerated by the clock, and what by prediction."""
    lines = []
    for model, space in facts["enumerated"].items():
        if "failed" in space:
            lines.append(f"- `{model}` was not enumerated: {space['failed']}")
            continue
        if space["whole"]:
            how = f"all {space['space']} were measured, {space['measured']} measurements with the search's own"
        else:
            how = (
                f"all were predicted by the calibrated costs; measured were the {BEST} predicted best and {DRAWN} "
                f"drawn at random from the others ({space['measured']} measurements with the search's own), so a fast "
                "mapping that is predicted badly could have been missed"
            )
        lines.append(
            f"- `{model}` in {space['groups']} groups of {space['units']} units has {space['space']} placements, up to "
            f"renaming devices of one kind: {how}. They were raced over at most {REPEATS} steps, and the fastest three "
            f"then stepped {space['repeats']} times in turn with the search's finalists. Delivered: "
            f"{ms(space['delivered_s'])} +- {ms(space['delivered_spread_s'])}; fastest of all: {ms(space['best_s'])} "
            f"+- {ms(space['best_spread_s'])} (found by {_found(space['best_by'])}, number "
            f"{space['best_rank_predicted']} by prediction). Gap: {space['gap']:.1%}."
        )
    gap = facts["gap_to_enumerated"]
    return ["Spaces small enough to enumerate:", "", *lines, *([] if gap is None else ["", f"Worst gap: {gap:.1%}."])]


def _found(by: str) -> str:
    return "enumeration alone" if by == "enumerated" else "the search, too"
