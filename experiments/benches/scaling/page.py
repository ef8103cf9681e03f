"""The part of BENCHMARKS.md that the bench scaling fills."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.benches.bench import Facts, ms
from experiments.benches.intervals import mean_in_words
from experiments.benches.scaling.plot import GENERIC, PICTURE
from experiments.benches.scaling.sgd_page import sgd_headline, sgd_lines
from experiments.report.text import markdown_table, percent

QUESTION = "How well are step times predicted at other sizes of batch, network and cluster?"


def headline(facts: Facts) -> str:
    """The errors of the formula on unseen networks and on larger ones, and the errors of the formula of SGD."""
    return (
        f"step times off by {mean_in_words(_held_out(facts))} held out, {facts['mape_extrapolation']:.1%} on larger "
        f"networks (best black box {facts['best_blackbox_extrapolation']:.1%}); {sgd_headline(facts.get('sgd'))}"
    )


def page_lines(facts: Facts) -> list[str]:
    """What was measured, how well each model predicts it, how stable fits are over seeds, and the picture."""
    kinds = ", ".join(
        f"{row['n_runs']} of `{kind}` ({ms(row['fastest_s'])} to {ms(row['slowest_s'])})"
        for kind, row in facts["by_kind"].items()
    )
    larger = ", ".join(f"`{kind}` {row['times_larger']:.1f}x" for kind, row in facts["by_kind"].items())
    failed = f" {facts['n_failed']} failed." if facts["n_failed"] else ""
    return [
        f"{facts['n_runs']} networks, each trained for real in one placed step on {_either(facts['devices'])} one-core "
        f"worker processes that share the batch{_chunked(facts)}: {kinds}. Batch, layers, filters or hidden units, "
        "kernel, activation, optimizer, devices and chunks follow a seeded Latin hypercube. Every step was timed in "
        "turn with a reference step, and scaled to a typical one (lower quartiles of 7 to 15 steps each). Two "
        f"measurements of the same network, in two processes, differed by {facts['noise']:.1%} on average.{failed}",
        *_crowded(facts),
        "",
        "One formula per kind of network (`generic`), in one of three forms. The formula's form is chosen without "
        "seeing the test runs: by cross-validation on the other runs, or, for larger networks, by the error on the "
        "largest of these when fitted on the rest. `sum` is the plain form, each intrinsic column a summand of its "
        "own; `joined` lets columns that multiply share a summand; `free` also gives each summand powers of its own of "
        "batch and devices, and has chunks where the batch does not matter. The black boxes see the same columns of "
        "the same runs and the products of these that the forms have, and learn seconds or, from logarithms, "
        "logarithms.",
        "",
        "*Held out*: five folds, every run predicted once while unseen. *Larger*: fitted on the 70 % of runs with the "
        f"fewest operations, judged on the other 30 % (in the median, by operations: {larger}).",
        "",
        *markdown_table(("model", "held out, MAPE", "larger, MAPE"), [_model(row) for row in facts["table"]]),
        "",
        f"`generic` held out: {mean_in_words(_held_out(facts))}; on larger networks: {mean_in_words(_larger(facts))}. "
        f"Best black box on larger networks: {facts['best_blackbox']}, {facts['best_blackbox_extrapolation']:.1%}.",
        "",
        *markdown_table(
            ("network", "held out", "larger", "form chosen", "best black box, held out", "larger"),
            [_kind(kind, row) for kind, row in facts["by_kind"].items()],
            left=(0, 3),
        ),
        "",
        *_beaten(facts),
        "Over seeds, on the smaller runs, by the form chosen there: how far fits are apart (standard deviation) in "
        "their exponents and in what they predict for the larger runs. The plain search looks for all constants "
        "at once; the projected one for exponents only, the coefficients following by least squares, and then "
        "descends.",
        "",
        *markdown_table(
            ("network", "search", "penalty", "exponents", "predictions", "MAPE, larger"),
            [_seeds(kind, found) for kind, row in facts["by_kind"].items() for found in row["stability"]],
            left=(0, 1),
        ),
        *sgd_lines(facts.get("sgd")),
        *(["", f"The runs: {', '.join(f'`{path}`' for path in facts['data'])}."] if facts.get("data") else []),
        "",
        f"![Predicted and measured step times, errors, and larger networks]({PICTURE})",
    ]


def _held_out(facts: Facts) -> list[float]:
    """The absolute error of every run, predicted while unseen."""
    points = [row["points"] for row in facts["by_kind"].values()]
    pairs = (pair for of in points for pair in zip(of["predicted_s"], of["measured_s"], strict=True))
    return [abs(predicted_s / measured_s - 1) for predicted_s, measured_s in pairs]


def _larger(facts: Facts) -> list[float]:
    """The absolute error of every larger run."""
    return [abs(ratio - 1) for row in facts["by_kind"].values() for ratio in row["beyond"]["ratio"][GENERIC]]


def _either(counts: Sequence[int] | int) -> str:
    """'1, 2 or 4'. An older record has two counts, of which it names only the larger; the other is 1."""
    *firsts, last = counts if isinstance(counts, Sequence) else (1, counts)
    return f"{', '.join(map(str, firsts))} or {last}"


def _chunked(facts: Facts) -> str:
    if not facts.get("chunks"):
        return ""
    return f", each taking its share in {_either(facts['chunks'])} chunks whose gradients it sums"


def _crowded(facts: Facts) -> list[str]:
    """A paragraph on workers that share cores; empty if there were enough cores."""
    cores = facts.get("cores", 0)
    many = [count for count in facts["devices"] if count > cores] if cores else []
    if not many:
        return []
    return [
        "",
        f"This process had {cores} cores, so {_plainly(many)} workers are oversubscribed: they share cores, and are no "
        "such devices as machines of their own would be. The column `workers_per_core` tells the models so.",
    ]


def _plainly(counts: Sequence[int]) -> str:
    return _either(counts) if len(counts) > 1 else str(counts[0])


def _model(row: Facts) -> list[str]:
    name = f"**{row['model']}**" if row["model"] == GENERIC else row["model"]
    return [name, percent(row["held_out"]), percent(row["extrapolation"])]


def _kind(kind: str, row: Facts) -> list[str]:
    parts = ("held_out", "extrapolation")
    best = [min((e, name) for name, e in row[part].items() if not name.startswith(GENERIC)) for part in parts]
    chosen = ", ".join(sorted({form for part in parts for form in row["chosen"][part]}))
    ours = [percent(row[part][GENERIC]) for part in parts]
    return [f"`{kind}`", *ours, chosen, *(f"{error:.1%} ({name})" for error, name in best)]


def _beaten(facts: Facts) -> list[str]:
    """On which kinds a black box errs less; empty if none does."""
    told = []
    for part, words in (("held_out", "held out"), ("extrapolation", "on larger networks")):
        least = {
            kind: min(error for name, error in row[part].items() if not name.startswith(GENERIC))
            for kind, row in facts["by_kind"].items()
        }
        ours = {kind: row[part][GENERIC] for kind, row in facts["by_kind"].items()}
        kinds = [f"`{kind}` ({least[kind]:.1%} against {ours[kind]:.1%})" for kind in least if least[kind] < ours[kind]]
        told += [f"{words} on {', '.join(kinds)}"] if kinds else []
    return [f"The best black box errs less than `generic` {'; '.join(told)}.", ""] if told else []


def _seeds(kind: str, row: Facts) -> list[str]:
    return [
        f"`{kind}`",
        row["search"] + (", rows drawn anew" if row["resampled"] else ""),
        f"{row['weight']:g}" if row["weight"] else "none",
        f"{row['exponents']:.3f}",
        f"{row['predictions']:.2%}",
        f"{row['mape']:.1%} +- {row['mape_spread']:.1%}",
    ]
