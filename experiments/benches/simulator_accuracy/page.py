"""The part of BENCHMARKS.md of the bench simulator-accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import compress
from math import inf
from statistics import mean, median

from experiments.benches.bench import Facts, missing_lines, ms
from experiments.benches.intervals import coefficient_in_words, mean_in_words
from experiments.report.text import markdown_table

QUESTION = "How far are simulated step times from measured ones, and do they put mappings in the right order?"
HEADS = ("network", "mappings", "step times", "unseen mappings", "Kendall tau", "replay", "transfers held out",
         "single devices only", "never profiled", "noise")  # fmt: skip
KEYS = ("unseen_mape", "kendall_tau", "replay_mape", "held_out_mape", "singles_only_mape", "predicted_costs_mape",
        "noise")  # fmt: skip
ERRORS = {
    "unseen_mape": "unseen mappings",
    "held_out_mape": "transfers held out",
    "singles_only_mape": "single devices only",
    "replay_mape": "replay",
    "predicted_costs_mape": "never profiled",
}
WORSE = 0.01  # differences of errors above this are reported


def headline(facts: Facts) -> str:
    """The error and the order of unseen mappings, and the error if only single devices calibrate."""
    return (
        f"unseen mappings off by {mean_in_words(_of(facts, 'unseen_mape'))} (wanted: 5%), Kendall tau "
        f"{coefficient_in_words(_of(facts, 'kendall_tau'))} (wanted: 0.85); calibrated by single devices only "
        f"{_percent(facts['singles_only_mape']) or '-'}"
    )


def page_lines(facts: Facts) -> list[str]:
    """The errors as a table, their means with intervals, and the networks for which calibration does harm."""
    rows = list(facts["by_model"].items())
    means, middles = ({"n_mappings": facts["n_mappings"], **_over(facts, of)} for of in (mean, median))
    cells = [_cells(name, row) for name, row in [*rows, ("mean", means), ("median", middles)]]
    shown = [any(column) for column in zip(*cells, strict=True)]  # a part that failed leaves its column empty
    return [
        f"Predicted against measured step times on {facts['workers']} one-core worker processes: mean absolute error. "
        f"*Unseen mappings*: calibrated on the first {facts['calibrated_on']} measured mappings, single devices "
        "included, predicting the others. *Replay*: calibrated on all. *Transfers held out*: the cost of transfers "
        "is taken from the other networks; of this one, its profile and its single-device steps are known. *Single "
        "devices only*: links as the link probes measured them. *Never profiled*: not calibrated, and costs as "
        "models predict them that know the others' profiles. *Noise*: interquartile range of one mapping's "
        "step times. "
        + (SAME if facts.get("same_mappings") else OTHERS).format(facts["calibrated_on"])
        + f" *Mappings*: all of a network, with the first {facts['calibrated_on']}. {DRAWN}",
        "",
        *markdown_table(list(compress(HEADS, shown)), [list(compress(row, shown)) for row in cells]),
        "",
        f"Means over networks: {'; '.join(_means(facts))}.",
        *_worse(facts),
        *_exhausted(facts),
        *missing_lines(facts.get("missing", {})),
    ]


DRAWN = (
    "They are what `local`, HEFT and the expert's rules propose, the first of these with some units moved, cuts by "
    "depth into a few slices, and random ones."
)
SAME = "All columns judge the same mappings: those after the first {}."
OTHERS = (
    "In this record the columns judge different mappings, so they cannot be compared exactly: *unseen mappings* and "
    "the tau those after the first {}, *transfers held out* and *single devices only* all but the single devices, "
    "*replay* all."
)


def _of(facts: Facts, key: str) -> list[float]:
    return [row[key] for row in facts["by_model"].values() if row.get(key) is not None]


def _over(facts: Facts, of: Callable[[list[float]], float]) -> Facts:
    """Each column's mean or median; None if no network has the column."""
    return {key: of(values) if (values := _of(facts, key)) else None for key in KEYS}


def _means(facts: Facts) -> Iterator[str]:
    for key, name in ERRORS.items():
        if values := _of(facts, key):
            yield f"{name} {mean_in_words(values)}"


def _worse(facts: Facts) -> Iterator[str]:
    """The networks for which calibration on a few mappings does harm."""
    worse = [
        f"{name} ({row['unseen_mape']:.1%}, by single devices only {row['singles_only_mape']:.1%})"
        for name, row in facts["by_model"].items()
        if row["unseen_mape"] is not None and row["singles_only_mape"] is not None
        and row["unseen_mape"] > row["singles_only_mape"] + WORSE
    ]  # fmt: skip
    yield ""
    if worse:
        yield (
            f"Calibration on the first {facts['calibrated_on']} mappings makes predictions worse, by more than a "
            f"point, than calibration by single devices only for: {', '.join(worse)}."
        )
    else:
        yield "For no network does calibration make predictions worse by more than a point than single devices only."


def _exhausted(facts: Facts) -> Iterator[str]:
    """The networks that had fewer mappings than were wanted."""
    for name, row in facts["by_model"].items():
        if row.get("tried", inf) < facts.get("wanted", 0):
            yield ""
            yield (
                f"{name}: {row['tried']} mappings instead of {facts['wanted']}, because hardly any others differ by "
                "more than the names of equal devices."
            )


def _cells(name: str, row: Facts) -> list[str]:
    return [
        name,
        str(row["n_mappings"]),
        f"{ms(row['fastest_s'])} to {ms(row['slowest_s'])}" if "fastest_s" in row else "",
        _percent(row["unseen_mape"]),
        "" if row["kendall_tau"] is None else f"{row['kendall_tau']:.2f}",
        _percent(row["replay_mape"]),
        _percent(row["held_out_mape"]),
        _percent(row["singles_only_mape"]),
        _percent(row.get("predicted_costs_mape")),
        _percent(row["noise"]),
    ]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"
