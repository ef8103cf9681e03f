"""The part of BENCHMARKS.md of the bench sample-efficiency."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, stdev

from experiments.benches.bench import Facts, ms
from experiments.benches.comparisons import best_known, how_raced, how_seeded, not_compared
from experiments.benches.intervals import mean_in_words, of_mean
from experiments.benches.sample_efficiency.plot import PICTURE
from experiments.benches.sample_efficiency.run import AFTER_S, AT, NEAR, is_near, over_networks, rows_by_searcher
from experiments.report.text import markdown_table, percent

QUESTION = "How good is what each searcher has found after few measurements?"
Rows = list[list[Facts]]
"""The rows of one searcher: for each network, a row for each seed."""


def headline(facts: Facts) -> str:
    """How much slower than the best known the default searcher's choice is, at all marks except the first."""
    by_name = _by_searcher(facts)
    ours = by_name.get(facts["searcher"], [])
    if not ours:
        return "no network was compared"
    after = ", ".join(f"{mean_in_words(over_networks(ours, f'gap_at_{count}'))} after {count}" for count in AT[1:])
    return f"`{facts['searcher']}` is slower than the best known by {after} (wanted: {NEAR:.0%} after 10)"


def page_lines(facts: Facts) -> list[str]:
    """Every searcher after 5, 10 and 20 measured mappings, by network and over all, and the picture."""
    by_name = _by_searcher(facts)
    marks = f"{', '.join(map(str, AT[:-1]))} and {AT[-1]}"
    return [
        f"How much slower than the best known each searcher's choice was after {marks} measured mappings of its own, "
        f"or after its last, where it had fewer. Each may measure {facts['measurements']}; the {facts['workers']} "
        f"single devices come before and count for all. {_how(facts)} A gap of a percent or two is noise.",
        "",
        f"{best_known(facts)} {how_raced(facts)} {how_seeded(facts)}{not_compared(facts)} These are the runs of "
        "[search-quality](#search-quality).",
        "",
        "The mean over networks with its interval, of each network the mean over its seeds. *Within "
        f"{NEAR:.0%}*: comparisons, of a network with a seed, at whose end its choice is that near. *Measured*: the "
        "fewest and the most that it measured on a network; a searcher ends early where it has nothing more to ask "
        "or the minutes are up.",
        "",
        *markdown_table(
            ("searcher", *(f"after {count}" for count in AT), f"within {NEAR:.0%}", "measured"),
            [_over_all(name, rows) for name, rows in by_name.items()],
        ),
        "",
        *_between_seeds(by_name),
        *_at_equal_seconds(by_name),
        f"By network, with the first seed, after {' / '.join(map(str, AT))}:",
        "",
        *markdown_table(
            ("network", "best known", "fastest at the end by", *by_name),
            [_cells(model, row, facts["searcher"], list(by_name)) for model, row in facts["by_model"].items()],
            left=(0, 2),
        ),
        "",
        f"![Gap to the best known over measured mappings]({PICTURE})",
    ]


def _by_searcher(facts: Facts) -> dict[str, Rows]:
    """The rows of each searcher, the default one first."""
    found: dict[str, Rows] = {}
    for network in facts["by_model"].values():
        for name, rows in rows_by_searcher(network, facts["searcher"]).items():
            found.setdefault(name, []).append(rows)
    return found


def _how(facts: Facts) -> str:
    """How a searcher's choice is found."""
    if "measured_again_at" not in facts:
        return (
            "A mapping's figure is from the end of the comparison if it got that far, otherwise from its race, scaled "
            "to one reference mapping; because a race is short, no figure from one counts as faster than the best "
            "known, but the luckiest of many may count as fast."
        )
    return (
        "Its choice is, of the winner of its races so far, the mappings that these stopped early, and the best single "
        "device, the one that was fastest when all choices at these marks were stepped side by side at the end. That "
        "is hindsight: a searcher does not know these times yet, so gaps are a little too small, most so of searchers "
        "that stopped many. A gap can grow: what won the races may turn out slower at the end. Between the marks, in "
        "the picture and at equal seconds, figures are from races."
    )


def _over_all(name: str, rows: Rows) -> list[str]:
    compared = [row for seeds in rows for row in seeds]
    near = sum(row["near_after"] is not None and is_near(row["gap"]) for row in compared)
    measured = [row["measured"] for row in compared]
    counts = f"{min(measured)}" if min(measured) == max(measured) else f"{min(measured)} to {max(measured)}"
    means = (_mean(over_networks(rows, f"gap_at_{count}")) for count in AT)
    return [name, *means, f"{near} of {len(compared)}", counts]


def _mean(gaps: Sequence[float]) -> str:
    if not gaps:
        return "-"
    interval = of_mean(gaps)
    return f"{mean(gaps):.1%}" + (f" ({interval[0]:.1%} to {interval[1]:.1%})" if interval else "")


def _between_seeds(by_name: dict[str, Rows]) -> list[str]:
    """How far the seeds of one network differ; empty if each network has one."""
    lines = []
    for name, rows in by_name.items():
        spreads = [[_deviation(seeds, f"gap_at_{count}") for seeds in rows] for count in AT]
        known = [[spread for spread in of_count if spread is not None] for of_count in spreads]
        if any(known):
            lines.append([name, *(percent(mean(of_count) if of_count else None) for of_count in known)])
    if not lines:
        return []
    return [
        "How far the seeds of one network differ: the standard deviation of their gaps, the mean over the networks "
        "that were compared with several:",
        "",
        *markdown_table(("searcher", *(f"after {count}" for count in AT)), lines),
        "",
    ]


def _deviation(seeds: list[Facts], key: str) -> float | None:
    known = [row[key] for row in seeds if row[key] is not None]
    return stdev(known) if len(known) > 1 else None


def _at_equal_seconds(by_name: dict[str, Rows]) -> list[str]:
    """The table over seconds; empty for a record without seconds."""
    keys = [f"gap_after_{seconds}_s" for seconds in AFTER_S]
    if not all(key in row for rows in by_name.values() for seeds in rows for row in seeds for key in keys):
        return []
    return [
        "At equal seconds: what each would deliver after so many seconds of its own asking and measuring. A mapping "
        "takes its share of the race that it was measured in, also where another searcher had asked it first; profile "
        "and single devices come before, for all. *Seconds*: until the searcher had all its results.",
        "",
        *markdown_table(
            ("searcher", *(f"after {seconds} s" for seconds in AFTER_S), "seconds"),
            [
                [
                    name,
                    *(_mean(over_networks(rows, key)) for key in keys),
                    f"{mean(over_networks(rows, 'seconds')):.0f} s",
                ]
                for name, rows in by_name.items()
            ],
        ),
        "",
    ]


def _cells(model: str, row: Facts, searcher: str, names: Sequence[str]) -> list[str]:
    rows = rows_by_searcher(row, searcher)
    if not rows:
        return [f"`{model}`", row.get("failed") or "not searched"]
    return [f"`{model}`", ms(row["best_known_s"]), row["fastest_by"], *(_gaps(rows.get(name)) for name in names)]


def _gaps(seeds: list[Facts] | None) -> str:
    return "-" if seeds is None else " / ".join(percent(seeds[0][f"gap_at_{count}"]) for count in AT)
