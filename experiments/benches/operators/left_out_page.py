"""The part of the page of the bench `operators` that is about networks left out of the dataset, one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean

from experiments.benches.bench import Facts, ms, ms_spread
from experiments.benches.intervals import geomean_in_words, mean_in_words
from experiments.report.text import markdown_table, percent

HEADS = ("network left out", "step on one worker", "predicted", "off by", "levelled", "by its own profile", "guessed",
         "seconds for costs", "seconds for the plan", "plan by predicted costs", "plan by its profile",
         "worth")  # fmt: skip
LEGEND = (
    "- *predicted*: the step on one worker, from the times of the other networks.",
    "- *levelled*: the error of the predicted step once it is multiplied by what the network's own ops take now over "
    "what they took when the dataset was measured, because the machine drifts.",
    "- *by its own profile*: the error of the step predicted from a profile of this network in the same minutes.",
    "- *guessed*: the share of the predicted step in ops that no model times.",
    "- *seconds for costs*, *for the plan*: what predicting all costs took, and then asking for the plan.",
    "- *plan*: what the default searcher asks first, before any step is measured. The step on one worker and both "
    "plans were stepped in turn in one process; medians, with the interquartile range. In brackets: how far the plan's "
    "own predicted step is off.",
    "- *worth*: step of the plan by its profile over that of the plan by predicted costs; above 1, predicted wins.",
)


def errors_of(facts: Facts) -> list[float]:
    """The absolute errors of the steps of all networks that could be left out."""
    return [abs(row["error"]) for row in measured_rows(facts).values()]


def left_out_lines(facts: Facts) -> Iterator[str]:
    """The errors in words, each network as a row; empty for a record without them."""
    if not facts.get("left_out"):
        return
    rows = list(measured_rows(facts).values())
    yield ""
    yield (
        f"Networks left out of the dataset, one at a time{_only(facts)}: the step on one worker, predicted from the "
        f"times of the others, is off by {mean_in_words(errors_of(facts))} on average. {_signs(rows)}"
    )
    yield ""
    yield from markdown_table(HEADS, [_cells(name, row) for name, row in facts["left_out"].items()])
    yield from ("", *LEGEND)
    if rows:
        yield from ("", "Means of the absolute errors, and what the plans are worth:", "", *_means(facts, rows))


def measured_rows(facts: Facts) -> dict[str, Facts]:
    """The rows of the networks that were left out and did not fail."""
    return {name: row for name, row in facts.get("left_out", {}).items() if "failed" not in row}


def _only(facts: Facts) -> str:
    """A clause on why only these networks; empty if all were left out."""
    some, every = len(facts["left_out"]), len(facts.get("networks", ()))
    return f" ({some} of the {every}, to save time)" if some < every else ""


def _signs(rows: Sequence[Facts]) -> str:
    """A sentence on whether all errors have the same sign."""
    if not rows:
        return "None could be measured."
    fast = sum(row["error"] < 0 for row in rows)
    if fast in (0, len(rows)):
        way = "fast" if fast else "slow"
        return f"All {len(rows)} are predicted too {way}, so there is a common bias: {_signed(rows)} on average."
    return f"{fast} of {len(rows)} are predicted too fast; with its sign, the error is {_signed(rows)} on average."


def _signed(rows: Sequence[Facts]) -> str:
    return f"{mean(row['error'] for row in rows):+.1%}"


def _means(facts: Facts, rows: Sequence[Facts]) -> Iterator[str]:
    """The other means, a line each."""
    for name, key in (("Levelled", "levelled_error"), ("By its own profile", "profiled_error")):
        yield f"- {name}: {mean_in_words([abs(row[key]) for row in rows])}."
    if facts["step_mape_corrected"] is not None:
        yield (
            "- If all steps are corrected by the common factor of the other networks: "
            f"{percent(facts['step_mape_corrected'])}."
        )
    worth = [row["by_profile"]["step_s"] / row["by_prediction"]["step_s"] for row in rows]
    yield f"- What plans by predicted costs are worth, geometric mean: {geomean_in_words(worth)}."


def _cells(name: str, row: Facts) -> list[str]:
    if "failed" in row:
        return [f"`{name}`", f"failed: {row['failed']}"]
    predicted, profiled = row["by_prediction"], row["by_profile"]
    return [
        f"`{name}`",
        ms_spread(row["step_s"], row["spread_s"]),
        ms(row["predicted_s"]),
        f"{row['error']:+.1%}",
        f"{row['levelled_error']:+.1%}",
        f"{row['profiled_error']:+.1%}",
        percent(row["guessed_share"]),
        *("" if seconds is None else f"{seconds:.1f}" for seconds in (row.get("costs_s"), predicted.get("plan_s"))),
        *(ms_spread(plan["step_s"], plan["spread_s"]) + _off(plan) for plan in (predicted, profiled)),
        f"{profiled['step_s'] / predicted['step_s']:.2f}",
    ]


def _off(plan: Facts) -> str:
    return f" ({plan['predicted_s'] / plan['step_s'] - 1:+.0%})" if "predicted_s" in plan else ""
