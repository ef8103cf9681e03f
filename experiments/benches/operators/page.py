"""The operator models in BENCHMARKS.md: errors in words, per family and per regressor, and networks left out."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.benches.bench import Facts, missing_lines
from experiments.benches.intervals import mean_in_words
from experiments.benches.operators.left_out_page import errors_of, left_out_lines
from experiments.benches.operators.plot import PICTURE
from experiments.report.profile import rows_in_words
from experiments.report.text import markdown_table, percent

QUESTION = "How well are times predicted of ops, and of steps of networks, that were never measured?"
ERRORS = (
    ("mean", "mape", "mape_unseen_networks"),
    ("median", "median_error", "median_error_unseen_networks"),
    ("weighted by time", "mape_time_weighted", "mape_unseen_networks_weighted"),
    ("single ops", "mape_single", None),
    ("ops inside a step", "mape_step", None),
    ("all ops, however short", "mape_all_ops", None),
)


WANTED = {"mape": 0.08, "mape_time_weighted": 0.05, "mape_unseen_networks": 0.20, "step_mape_left_out": 0.12}
NAMED = {
    "mape": "unseen shapes",
    "mape_time_weighted": "unseen shapes, weighted by time",
    "mape_unseen_networks": "unseen networks",
    "step_mape_left_out": "the step of a network left out",
}


def headline(facts: Facts) -> str:
    """The errors for which there is an aim."""
    shapes, weighted, networks = (
        f"{percent(facts.get(key))} (wanted: {WANTED[key]:.0%})"
        for key in ("mape", "mape_time_weighted", "mape_unseen_networks")
    )
    return (
        f"error of the best models by family: unseen shapes {shapes}, by time {weighted}, unseen networks {networks}; "
        "by those of `--costs predicted`: step of networks left out "
        f"{mean_in_words(errors_of(facts))} (wanted: {WANTED['step_mape_left_out']:.0%})"
    )


def page_lines(facts: Facts) -> list[str]:
    """The errors in words, per family and per regressor."""
    by_family = [
        [row["family"], rows_in_words(row), row["regressor"],
         *(percent(row[f"mape_{name}"]) for name in ("unseen_shapes", "unseen_networks", "time_weighted"))]
        for row in facts["families"]
    ]  # fmt: skip
    by_regressor = [
        [name, percent(errors["unseen_shapes"]), percent(errors.get("unseen_networks"))]
        for name, errors in facts["by_regressor"].items()
    ]
    return [
        f"{facts['n_train']} rows fitted; held out: every fifth {_held_out(facts)} ({facts['n_test']} rows) and the "
        f"networks {', '.join(facts['held_out_networks']) or 'none'} ({facts['n_test_unseen_networks']} rows with "
        f"signatures not fitted). Counted are ops of at least {facts['counted_from_s'] * 1e6:.0f} us. Each measured "
        f"time is the median of {facts['repeats']} repeats, in passes minutes apart over {len(facts['networks'])} "
        f"networks{_swept(facts)}, levelled by `placer/profile/operators/drift.py`.",
        "",
        f"![Errors by family of ops, and steps of networks left out]({PICTURE})",
        "",
        *markdown_table(
            ("mean absolute error", "unseen shapes", "unseen networks"),
            [[name, percent(facts[shapes]), percent(facts[whole]) if whole else ""] for name, shapes, whole in ERRORS],
        ),
        "",
        *_aims(facts),
        f"Two halves of the repeats of the same op disagree by {percent(facts['repeats_disagree']['all'])} on "
        f"average: the clock alone accounts for about {100 * facts['noise_floor']:.1f} points of the error. "
        f"{percent(facts['within_spread'])} of the errors are within the predicted spread.",
        "",
        "Cross-validated on the fitted rows. The errors above are of models whose regressors are chosen so, family by "
        "family. `--costs predicted` takes the same few for every family, because choosing takes minutes "
        "([why](docs/decisions/027-predicted-costs.md)): its errors of single ops are not on this page, those of whole "
        "steps are, as *networks left out*.",
        "",
        *markdown_table(
            ("family", "rows", "chosen", "unseen shapes", "unseen networks", "weighted by time"), by_family, (0, 2)
        ),
        "",
        *markdown_table(("regressor", "unseen shapes", "unseen networks"), by_regressor),
        *_elsewhere_lines(facts),
        *left_out_lines(facts),
        *missing_lines(facts.get("missing", {})),
    ]


def _held_out(facts: Facts) -> str:
    """What every fifth of is held out; of older records single signatures."""
    if not facts.get("held_out_whole_ops"):
        return "op signature, while the same op at other sizes may be among the fitted"
    return "op, with the same op at other batch sizes and as rescaled for the profile"


def _swept(facts: Facts) -> str:
    """A clause on random steps; empty for a record without them."""
    return f" and {facts['swept']} random steps (`experiments/zoo/sweep.py`)" if facts.get("swept") else ""


def _aims(facts: Facts) -> Iterator[str]:
    """Which aims are reached, and the error of each network that was held out."""
    said = [
        f"{name} {wanted:.0%}: {'reached' if facts[key] <= wanted else 'not reached'}, {facts[key]:.1%}"
        for (key, name), wanted in zip(NAMED.items(), WANTED.values(), strict=True)
        if facts.get(key) is not None
    ]
    if said:
        yield from (f"Wanted: {'; '.join(said)}.", "")
    by_network = facts.get("mape_by_unseen_network")
    if by_network:
        yield from (f"Unseen networks: {', '.join(f'{name} {percent(e)}' for name, e in by_network.items())}.", "")


def _elsewhere_lines(facts: Facts) -> Iterator[str]:
    """Networks timed on other hardware; empty for a record without them."""
    if not facts.get("elsewhere"):
        return
    found = facts["elsewhere"]
    yield ""
    yield (
        "On other hardware, of which nothing was measured but yardsticks: all cores of this machine in one process, "
        "predicted from its workers of one core (no second machine was tried). Ops of at least "
        f"{facts['counted_from_s'] * 1e6:.0f} us inside the step of a network."
    )
    yield ""
    heads = ("network", "ops", "mean error", "sum", "left out", "sum, left out", "by peaks", "sum, by peaks")
    yield from markdown_table(heads, [_elsewhere_cells(name, row) for name, row in found["networks"].items()])
    yield from (
        "",
        "- *mean error*: predicted from what the same ops took on a one-core worker.",
        "- *left out*: predicted from what ops of all other networks took there.",
        "- *by peaks*: all ops are taken to be as much faster as the largest matrix product by itself "
        f"({1 / found['peaks']:.2f}x).",
        "- *sum*: the error of the sum of these ops.",
    )


def _elsewhere_cells(name: str, row: Facts) -> list[str]:
    ways = [row[way] for way in ("known", "left_out", "by_peaks")]
    return [f"`{name}`", str(row["ops"]), *(cell for e in ways for cell in (percent(e["mean"]), f"{e['whole']:+.1%}"))]
