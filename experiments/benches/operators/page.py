"""The part of BENCHMARKS.md of the bench operators."""

from __future__ import annotations

from experiments.benches.bench import Facts
from experiments.report.text import percent


def page(facts: Facts) -> list[str]:
    """The errors in words, per family and per regressor."""
    lines = [
        f"{facts['n_train']} rows fitted; held out: every fifth op signature ({facts['n_test']} rows) and the "
        f"networks {', '.join(facts['held_out_networks']) or 'none'} ({facts['n_test_unseen_networks']} rows with "
        f"signatures not fitted). Counted are ops of at least {facts['counted_from_s'] * 1e6:.0f} us. Each measured "
        f"time is the median of {facts['repeats']} repeats, in passes minutes apart over {len(facts['networks'])} "
        "networks, levelled by placer/drift.py.",
        "",
        "| mean absolute error | unseen shapes | unseen networks |",
        "| --- | ---: | ---: |",
        f"| mean | {percent(facts['mape'])} | {percent(facts['mape_unseen_networks'])} |",
        f"| median | {percent(facts['median_error'])} | {percent(facts['median_error_unseen_networks'])} |",
        f"| weighted by time | {percent(facts['mape_time_weighted'])} | "
        f"{percent(facts['mape_unseen_networks_weighted'])} |",
        f"| single ops | {percent(facts['mape_single'])} | |",
        f"| ops inside a step | {percent(facts['mape_step'])} | |",
        f"| all ops, however short | {percent(facts['mape_all_ops'])} | |",
        "",
        f"Two halves of the repeats of the same op disagree by {percent(facts['repeats_disagree']['all'])} on "
        f"average: about {percent(facts['noise_floor'])} of the error is the clock's own. "
        f"{percent(facts['within_spread'])} of the errors are within the predicted spread.",
        "",
        "Cross-validated on the fitted rows:",
        "",
        "| family | rows | chosen | unseen shapes | unseen networks | weighted by time |",
        "| --- | ---: | --- | ---: | ---: | ---: |",
    ]
    for row in facts["families"]:
        errors = (row[f"mape_{name}"] for name in ("unseen_shapes", "unseen_networks", "time_weighted"))
        cells = " | ".join(percent(error) for error in errors)
        lines.append(f"| {row['family']} | {row['rows']} | {row['regressor']} | {cells} |")
    lines += ["", "| regressor | unseen shapes | unseen networks |", "| --- | ---: | ---: |"]
    for name, errors_of in facts["by_regressor"].items():
        lines.append(
            f"| {name} | {percent(errors_of['unseen_shapes'])} | {percent(errors_of.get('unseen_networks'))} |"
        )
    return lines
