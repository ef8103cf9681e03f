"""The operator models in BENCHMARKS.md: errors in words, per family and per regressor, and networks left out."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.benches.bench import Facts, missing_lines, ms, ms_spread
from experiments.report.text import markdown_table, percent

ERRORS = (
    ("mean", "mape", "mape_unseen_networks"),
    ("median", "median_error", "median_error_unseen_networks"),
    ("weighted by time", "mape_time_weighted", "mape_unseen_networks_weighted"),
    ("single ops", "mape_single", None),
    ("ops inside a step", "mape_step", None),
    ("all ops, however short", "mape_all_ops", None),
)


def page_lines(facts: Facts) -> list[str]:
    """The errors in words, per family and per regressor."""
    by_family = [
        [row["family"], str(row["rows"]), row["regressor"],
         *(percent(row[f"mape_{name}"]) for name in ("unseen_shapes", "unseen_networks", "time_weighted"))]
        for row in facts["families"]
    ]  # fmt: skip
    by_regressor = [
        [name, percent(errors["unseen_shapes"]), percent(errors.get("unseen_networks"))]
        for name, errors in facts["by_regressor"].items()
    ]
    return [
        f"{facts['n_train']} rows fitted; held out: every fifth op signature ({facts['n_test']} rows) and the "
        f"networks {', '.join(facts['held_out_networks']) or 'none'} ({facts['n_test_unseen_networks']} rows with "
        f"signatures not fitted). Counted are ops of at least {facts['counted_from_s'] * 1e6:.0f} us. Each measured "
        f"time is the median of {facts['repeats']} repeats, in passes minutes apart over {len(facts['networks'])} "
        f"networks{_swept(facts)}, levelled by `placer/profile/operators/drift.py`.",
        "",
        *markdown_table(
            ("mean absolute error", "unseen shapes", "unseen networks"),
            [[name, percent(facts[shapes]), percent(facts[whole]) if whole else ""] for name, shapes, whole in ERRORS],
        ),
        "",
        f"Two halves of the repeats of the same op disagree by {percent(facts['repeats_disagree']['all'])} on "
        f"average: about {percent(facts['noise_floor'])} of the error is the clock's own. "
        f"{percent(facts['within_spread'])} of the errors are within the predicted spread.",
        "",
        "Cross-validated on the fitted rows:",
        "",
        *markdown_table(
            ("family", "rows", "chosen", "unseen shapes", "unseen networks", "weighted by time"), by_family, (0, 2)
        ),
        "",
        *markdown_table(("regressor", "unseen shapes", "unseen networks"), by_regressor),
        *_elsewhere_lines(facts),
        *_left_out_lines(facts),
        *missing_lines(facts.get("missing", {})),
    ]


def _swept(facts: Facts) -> str:
    """Nothing in records from before there were random steps."""
    return f" and {facts['swept']} random steps (`experiments/zoo/sweep.py`)" if facts.get("swept") else ""


def _elsewhere_lines(facts: Facts) -> Iterator[str]:
    """Networks timed on other hardware; nothing in records from before there were yardsticks."""
    if not facts.get("elsewhere"):
        return
    found = facts["elsewhere"]
    yield ""
    yield (
        f"On other hardware ({found['machine']}, all cores in one process), of which nothing was measured but "
        f"yardsticks: ops of at least {facts['counted_from_s'] * 1e6:.0f} us inside the step of a network, from what "
        "they took on a one-core worker, and, *left out*, from what ops of all other networks took there. *Whole*: the "
        "sum of these ops. *By peaks*: all ops taken to be as much faster as the largest matrix product by itself "
        f"({1 / found['peaks']:.2f}x)."
    )
    yield ""
    heads = ("network", "ops", "mean error", "whole", "left out", "whole", "by peaks", "whole")
    yield from markdown_table(heads, [_elsewhere_cells(name, row) for name, row in found["networks"].items()])


def _elsewhere_cells(name: str, row: Facts) -> list[str]:
    ways = [row[way] for way in ("known", "left_out", "by_peaks")]
    return [f"`{name}`", str(row["ops"]), *(cell for e in ways for cell in (percent(e["mean"]), f"{e['whole']:+.1%}"))]


HEADS = ("network left out", "step on one worker", "predicted", "off by", "levelled", "by its own profile", "guessed",
         "plan by predicted costs", "plan by its profile", "worth")  # fmt: skip


def _left_out_lines(facts: Facts) -> Iterator[str]:
    """Networks left out of the dataset, each as a row; nothing in records from before there were any."""
    if not facts.get("left_out"):
        return
    yield ""
    yield (
        "Networks left out of the dataset, one at a time: the step on one worker, predicted from the times of the "
        f"others, is off by {percent(facts['step_mape_left_out'])} on average (standard deviation over networks "
        f"{percent(facts['step_mape_left_out_spread'])}), *levelled* by {percent(facts['step_mape_levelled'])}: "
        "multiplied by what its own ops take now of what they took when the dataset was measured, because the machine "
        "drifts. Predicted from a profile of its own, in the same minutes, it is off by "
        f"{percent(facts['step_mape_profiled'])}; from the times of the others, multiplied by what steps of the others "
        f"took of what was predicted, by {percent(facts['step_mape_corrected'])}. *Guessed*: the share of the "
        "predicted step in ops that no model times. The plans are what the default searcher asks first, before any "
        "step is measured; the step on one worker and both plans were stepped in turn in one process. Medians, with "
        "the interquartile range. *Worth*: step of the plan by its profile over that of the plan by predicted costs."
    )
    yield ""
    yield from markdown_table(HEADS, [_left_out_cells(name, row) for name, row in facts["left_out"].items()])
    if facts["geomean_worth"]:
        yield ""
        yield f"Geometric mean of what plans by predicted costs are worth: {facts['geomean_worth']:.2f}."


def _left_out_cells(name: str, row: Facts) -> list[str]:
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
        ms_spread(predicted["step_s"], predicted["spread_s"]),
        ms_spread(profiled["step_s"], profiled["spread_s"]),
        f"{profiled['step_s'] / predicted['step_s']:.2f}",
    ]
