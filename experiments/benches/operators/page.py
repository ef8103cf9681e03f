"""The part of BENCHMARKS.md of the bench operators."""

from __future__ import annotations

from experiments.benches.bench import Facts
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
        "networks, levelled by placer/drift.py.",
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
    ]
