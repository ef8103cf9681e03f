"""The part of BENCHMARKS.md of the bench search-quality."""

from __future__ import annotations

from experiments.benches.bench import Facts, ms, ms_spread
from experiments.benches.comparisons import how_raced, how_seeded, not_compared
from experiments.benches.intervals import geomean_in_words
from experiments.benches.search_quality.enumerated import BEST, DRAWN, REPEATS
from experiments.benches.search_quality.run import by_seed, single_ratios, untouched_ratios, vs_peer
from experiments.report.text import markdown_table

QUESTION = "Does another searcher, or trying all mappings, find a faster one than the default searcher does?"
HEADS = ("network", "best single device", "delivered", "ratio", "best peer", "its step", "against the peer",
         "TensorFlow alone", "predicted bound", "measured", "seconds")  # fmt: skip


def headline(facts: Facts) -> str:
    """Both geometric means, the worst ratio to a peer, and the gap to the best that enumeration found."""
    ratios = single_ratios(facts["by_model"])
    if not ratios:
        return "no network was compared"
    worst, gap, against = _worst(facts), facts["gap_to_enumerated"], _all_against(facts)
    alone = geomean_in_words(untouched_ratios(facts["by_model"]))
    return (
        f"{geomean_in_words(ratios)} times as fast as the best single worker, {alone} times as fast as TensorFlow "
        "alone, timed before"
        + ("" if worst is None else f"; at the worst {worst:.3f} times as fast as the best other searcher (wanted: 1)")
        + f", slower in {sum(ratio < 1 for ratio in against)} of {len(against)}"
        + ("" if gap is None else f"; {gap:.1%} slower than the best of {_whole(facts)}")
    )


def page_lines(facts: Facts) -> list[str]:
    """The comparison with single devices and peers, each searcher's ratios, and the enumerated spaces."""
    return [*_against_peers(facts), "", *_all_searchers(facts), "", *_enumerated(facts)]


def _against_peers(facts: Facts) -> list[str]:
    ratios, untouched, worst = (
        single_ratios(facts["by_model"]), untouched_ratios(facts["by_model"]), _worst(facts)
    )  # fmt: skip
    return [
        f"What `{facts['searcher']}` delivers on {facts['workers']} one-core worker processes after at most "
        f"{facts['measurements']} measured mappings, the single devices aside, against the best single device and the "
        f"best of the other searchers, which had at most {facts['peer_measurements']} each. Networks are compared in "
        "processes of their own, all searchers on the same profile, measured in turn. The figures are from the end "
        "of the comparison, where the fastest mapping of each was stepped in turn with the others': medians with the "
        "interquartile range. What is delivered is chosen by these very times, in hindsight, for each searcher "
        "alike, so all are a little flattered. *Against the peer* below 1 means that the peer's was faster; a peer "
        "whose mapping is slower than the best single device would deliver that one, too, and is held to it. The "
        "fastest of many peers is flattered most by noise. *TensorFlow alone*: the step on all cores, timed before "
        "the workers were started; main-job times the two in turn. `exact` is left out: it does not learn from "
        "measurements, and can take minutes.",
        "",
        f"{how_raced(facts)} {how_seeded(facts)}{not_compared(facts)}",
        "",
        *markdown_table(HEADS, [_peer_cells(name, row) for name, row in facts["by_model"].items()], left=(0, 4)),
        "",
        *([f"Geometric mean of the ratios: {geomean_in_words(ratios)}."] if ratios else []),
        *([f"To TensorFlow alone on all cores: {geomean_in_words(untouched)}."] if untouched else []),
        *([f"Worst against a peer: {worst:.3f}."] if worst else []),
        *_by_seed(facts),
    ]


def _worst(facts: Facts) -> float | None:
    return min(_all_against(facts), default=None)


def _all_against(facts: Facts) -> list[float]:
    """The ratio to the best peer, for each comparison that has one: of each network with each seed."""
    return [ratio for rows in by_seed(facts["by_model"]) for row in rows if (ratio := _against(row))]


def _by_seed(facts: Facts) -> list[str]:
    """The results of each seed; empty if each network has one seed."""
    rows = {name: row["by_seed"] for name, row in facts["by_model"].items() if "by_seed" in row}
    if not rows:
        return []
    seeds = list(next(iter(rows.values())))
    return [
        "",
        "Each seed's ratio to the best single device, and against the best peer of that seed. The geometric mean takes "
        "that of a network's seeds:",
        "",
        *markdown_table(
            ("network", *(f"seed {seed}" for seed in seeds)),
            [[f"`{name}`", *(_of_seed(row[seed]) for seed in seeds)] for name, row in rows.items()],
        ),
    ]


def _of_seed(row: Facts) -> str:
    ratio, against = row["ratio_to_best_single"], row["vs_peer"]
    return "-" if ratio is None else f"{ratio:.2f}" + (f", {against:.3f} against {row['best_peer']}" if against else "")


def _peer_cells(name: str, row: Facts) -> list[str]:
    if "failed" in row:
        return [f"`{name}`", f"failed: {row['failed']}"]
    single_s, ratio, peer = row["best_single_s"], row["ratio_to_best_single"], row["best_peer"]
    return [
        f"`{name}`",
        "" if single_s is None else ms_spread(single_s, row["best_single_spread_s"]),
        ms_spread(row["step_s"], row["spread_s"]) + (" (single)" if row["delivers_single"] else ""),
        "" if ratio is None else f"{ratio:.2f}",
        *([peer, ms(row["best_peer_s"]), f"{_against(row):.3f}"] if peer else ["", "", ""]),
        f"{ms(row['in_process_s'])} ({row['in_process_s'] / row['step_s']:.2f})",
        ms(row["lower_bound_s"]),
        str(row["measured"]),
        f"{row['seconds']:.0f}",
    ]


def _against(row: Facts) -> float | None:
    """The ratio to the best peer, computed again because older records did not let peers deliver the single device.
    The row of one of several seeds has no more than the ratio.
    """
    if "best_peer_s" not in row:
        against: float | None = row["vs_peer"]
        return against
    return vs_peer(row["best_peer_s"], row["best_single_s"], row["step_s"])


def _all_searchers(facts: Facts) -> list[str]:
    """Every searcher's fastest proposal as a multiple of the best single device's speed."""
    models = {name: row["searchers"] for name, row in facts["by_model"].items() if "failed" not in row}
    names = list(dict.fromkeys(name for rows in models.values() for name in rows))
    rows = [[f"`{model}`", *(_ratio(rows.get(name)) for name in names)] for model, rows in models.items()]
    return [
        "Each searcher's fastest proposal, how many times faster than the best single device (below 1: slower), and "
        "how many mappings it had measured:",
        "",
        *markdown_table(["network", *names], rows),
    ]


def _ratio(row: Facts | None) -> str:
    if not row or row["ratio_to_best_single"] is None:
        return "-"
    return f"{row['ratio_to_best_single']:.2f} ({row['measured']})"


def _enumerated(facts: Facts) -> list[str]:
    """The spaces that were enumerated by the clock, and those enumerated by prediction."""
    gap = facts["gap_to_enumerated"]
    lines = [f"- `{model}` {_of_space(space)}" for model, space in facts["enumerated"].items()]
    return [
        "Small spaces of mappings, tried whole by the clock, or by prediction and then in part by the clock:",
        "",
        *lines,
        *([] if gap is None else ["", f"Worst gap: {gap:.1%}."]),
    ]


def _whole(facts: Facts) -> str:
    """A phrase on the spaces whose mappings were all measured."""
    sizes = [space["space"] for space in facts["enumerated"].values() if space.get("whole")]
    return f"{len(sizes)} spaces that were measured whole (up to {max(sizes, default=0):,} mappings)"


def _finalists(space: Facts) -> str:
    """Which enumerated mappings were finalists; in older records they were chosen by step time alone."""
    return f"best {space['finalists']}" if "finalists" in space else "fastest three"


def _of_space(space: Facts) -> str:
    if "failed" in space:
        return f"was not enumerated: {space['failed']}"
    if space["whole"]:
        how = f"all {space['space']} were measured, {space['measured']} measurements with the search's own"
    else:
        how = (
            f"all were predicted by the calibrated costs; measured were the {BEST} predicted best and {DRAWN} "
            f"drawn at random from the others ({space['measured']} measurements with the search's own), so a fast "
            "mapping that is predicted badly could have been missed"
        )
    by = "enumeration alone" if space["best_by"] == "enumerated" else "the search, too"
    return (
        f"in {space['groups']} groups of {space['units']} units has {space['space']} placements, up to renaming "
        f"devices of one kind: {how}. They were raced over at most {REPEATS} steps, and the "
        f"{_finalists(space)} then stepped {space['repeats']} times in turn with the search's finalists. "
        f"Delivered: {ms_spread(space['delivered_s'], space['delivered_spread_s'])}; fastest of all: "
        f"{ms_spread(space['best_s'], space['best_spread_s'])} (found by {by}, number {space['best_rank_predicted']} "
        f"by prediction). Gap: {space['gap']:.1%}."
    )
