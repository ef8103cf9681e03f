"""The part of BENCHMARKS.md that the bench scaling fills."""

from __future__ import annotations

from experiments.benches.bench import Facts, ms
from experiments.report.text import percent

PICTURE = "docs/scaling.png"
GENERIC = "generic"


def page(facts: Facts) -> list[str]:
    """What was measured, who predicts it how well, over seeds, and the picture."""
    kinds = ", ".join(
        f"{row['n_runs']} of `{kind}` ({ms(row['fastest_s'])} to {ms(row['slowest_s'])})"
        for kind, row in facts["by_kind"].items()
    )
    lines = [
        f"{facts['n_runs']} networks, each trained for real in one placed step on one or {facts['devices']} one-core "
        f"worker processes that share the batch: {kinds}. Batch, layers, filters or hidden units, kernel, activation, "
        "optimizer and devices follow a seeded Latin hypercube. Every step was timed in turn with a reference step, "
        f"and is told in its time (lower quartiles of 7 to 15 steps each); the same network measured "
        f"twice, in two processes, came out {facts['noise']:.1%} apart on average.{_failed(facts)}",
        "",
        "One formula per kind of network (`generic`), chosen among three forms on the runs that it is shown, by the "
        "kind of test that follows: by cross-validation, or by the error on the largest of them when fitted on the "
        "others. `sum` is the plain form, each intrinsic column a summand of its own; `joined` lets columns that "
        "multiply share a summand; `free` also gives each summand powers of its own of batch and devices. The black "
        "boxes see the same columns of the same runs, and learn seconds or, from logarithms, logarithms.",
        "",
        "*Held out*: five folds, every run predicted once while unseen. *Larger*: fitted on the 70 % of runs with the "
        f"fewest operations, judged on the other 30 % ({_larger(facts)}).",
        "",
        "| model | held out, MAPE | larger, MAPE |",
        "| --- | ---: | ---: |",
    ]
    lines += [_row(row) for row in facts["table"]]
    lines += [
        "",
        f"Best black box on larger networks: {facts['best_blackbox']}, {facts['best_blackbox_extrapolation']:.1%}, "
        f"against {facts['mape_extrapolation']:.1%}.",
        "",
        "| network | held out | larger | form chosen | best black box, held out | larger |",
        "| --- | ---: | ---: | --- | ---: | ---: |",
    ]
    lines += [_kind_row(kind, row) for kind, row in facts["by_kind"].items()]
    lines += [
        "",
        "Over seeds, on the smaller runs, by the form chosen there: how far fits are apart (standard deviation) in "
        "their exponents and in what they predict for the larger runs. The plain search looks for all constants "
        "at once; the projected one for exponents only, the coefficients following by least squares, and then "
        "descends.",
        "",
        "| network | search | penalty | exponents | predictions | MAPE, larger |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for kind, row in facts["by_kind"].items():
        lines += [_seed_row(kind, found) for found in row["stability"]]
    if facts.get("data"):
        lines += ["", f"The runs: {', '.join(f'`{path}`' for path in facts['data'])}."]
    return [*lines, "", f"![Predicted and measured step times, errors, and larger networks]({PICTURE})"]


def _failed(facts: Facts) -> str:
    return f" {facts['n_failed']} failed." if facts["n_failed"] else ""


def _larger(facts: Facts) -> str:
    times = [f"`{kind}` {row['times_larger']:.1f}x" for kind, row in facts["by_kind"].items()]
    return f"in the median, by operations: {', '.join(times)}"


def _row(row: Facts) -> str:
    name = f"**{row['model']}**" if row["model"] == GENERIC else row["model"]
    return f"| {name} | {row['held_out']:.1%} | {percent(row['extrapolation'])} |"


def _kind_row(kind: str, row: Facts) -> str:
    best = {
        part: min((error, name) for name, error in row[part].items() if not name.startswith(GENERIC))
        for part in ("held_out", "extrapolation")
    }
    chosen = ", ".join(sorted(set(row["chosen"]["held_out"] + row["chosen"]["extrapolation"])))
    cells = [f"{error:.1%} ({name})" for error, name in best.values()]
    ours = f"{row['held_out'][GENERIC]:.1%} | {row['extrapolation'][GENERIC]:.1%}"
    return f"| `{kind}` | {ours} | {chosen} | {' | '.join(cells)} |"


def _seed_row(kind: str, row: Facts) -> str:
    search = row["search"] + (", rows drawn anew" if row["resampled"] else "")
    weight = f"{row['weight']:g}" if row["weight"] else "none"
    return (
        f"| `{kind}` | {search} | {weight} | {row['exponents']:.3f} | {row['predictions']:.2%} | "
        f"{row['mape']:.1%} +- {row['mape_spread']:.1%} |"
    )
