"""The part of BENCHMARKS.md of the bench search-quality."""

from __future__ import annotations

from experiments.benches.bench import Facts, ms
from experiments.benches.search_quality.enumerated import BEST, DRAWN, REPEATS
from experiments.report.text import markdown_table


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
        *markdown_table(["network", *names]),
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
