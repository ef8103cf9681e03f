"""The bench `gpu` as a page of BENCHMARKS.md: its tables, and in words what helps on a GPU and what does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import geometric_mean

from experiments.benches.bench import Facts, ms, ms_spread
from experiments.benches.gpu.figures import DEFAULT, NOTICED, is_on_one, with_ratio
from experiments.benches.gpu.parts_page import (
    accuracy_lines,
    missing_parts,
    overhead_line,
    tight_line,
    unseen_in_words,
)
from experiments.benches.gpu.plot import PICTURE
from experiments.benches.gpu.tasks import SEARCHERS
from experiments.benches.intervals import UNKNOWN, geomean_in_words
from experiments.report.text import markdown_table, percent

QUESTION = "On a machine with a GPU, what is gained over TensorFlow's own placement, and how much of it by placement?"
HEADS = ("network", "TensorFlow's default", "delivered", "ratio to default", "bound", "ratio to best single",
         "GPU only", "CPU only", *SEARCHERS, "ops, seconds on the GPU")  # fmt: skip
SPLIT_HEADS = ("devices", "network", "default", "delivered", "ratio to default", "ratio to best single", "bound")


def headline(facts: Facts) -> str:
    """What was gained over TensorFlow's default, how much of it by placement, and what a call costs."""
    rows = with_ratio(facts["models"])
    faster = {name: row for name, row in rows.items() if _is_faster(row)}
    cost = facts["autoplace"] or {}
    missing = len(facts["models"]) - len(rows) + len(facts["not_reached"])
    return (
        f"{geomean_in_words([row['ratio_to_tf_default'] for row in rows.values()])} times TensorFlow's default, "
        f"{_by_placement_in_short(rows)} times the best single device; faster on {len(faster)} of {len(rows)} networks "
        f"({missing} tasks missing), on {len(_on_one(faster))} without placement; unseen mappings off by "
        f"{unseen_in_words(facts)}; overhead {percent(cost.get('overhead_total'))} (wanted: 1%)"
    )


def page_lines(facts: Facts) -> list[str]:
    """Tables whose rows have figures measured side by side, and sentences on them."""
    return [
        f"On {facts['device']} and its host: training steps of the zoo's networks at native size "
        f"([sizes](docs/networks.md)), each first searched with at most {facts['measurements']} measured mappings "
        "beside single devices, then all contestants stepped in turn in the same minutes. Medians with the "
        "interquartile range, ratios with their standard error. Figures in brackets are of contestants dropped after "
        "some steps, for taking three times as long as the best. *Bound*: how many times faster than the default a "
        "mapping can at most be predicted to be, by costs profiled on this machine; where the measured ratio is above "
        "it, the predictions were wrong. Where *GPU only* differs from the default, that "
        "is no placement: a placed step's graph is optimised once and called without detours, which shows in steps of "
        f"a millisecond and less{_staged(facts['models'].values())}.",
        "",
        *markdown_table(HEADS, [_cells(name, row) for name, row in facts["models"].items()]),
        "",
        *_sentences(facts),
        *_splits(facts["splits"]),
        tight_line(facts["tight_memory"], facts["limit_mib"]),
        "",
        *accuracy_lines(facts),
        overhead_line(facts["autoplace"]),
        "",
        *missing_parts(facts),
        "",
        f"![Ratios to TensorFlow's default, and step times predicted and measured]({PICTURE})",
    ]


def _staged(rows: Iterable[Facts]) -> str:
    """How batches got to the GPU; empty if TensorFlow copied them in its own way."""
    sizes = [row["stages_from_bytes"] for row in rows if row.get("stages_from_bytes")]
    return f", and a batch of {min(sizes) >> 20} MiB or more is copied to pinned memory by all threads" if sizes else ""


def _cells(name: str, row: Facts) -> list[str]:
    if "failed" in row:
        return [f"`{name}`", f"failed: {row['failed']}"]
    contest = row["contestants"]
    gpus, cpus = ([device for device in row["placed"] if device.startswith(kind)] for kind in ("gpu", "cpu"))
    shares = [f"{sum(row['placed'][gpu][key] for gpu in gpus):.0%}" for key in ("ops", "seconds")]
    return [
        f"`{name}`",
        ms_spread(row["tf_default_s"], contest[DEFAULT]["spread_s"]),
        f"{ms_spread(row['step_s'], row['spread_s'])}, {row['delivered']}",
        _ratio(row),
        _times(row["bound_ratio"]),
        _times(row["ratio_to_best_single"]),
        _step(contest, gpus),
        _step(contest, cpus),
        *(_step(contest, [searcher]) for searcher in SEARCHERS),
        ", ".join(shares) if gpus else "-",
    ]


def _ratio(row: Facts) -> str:
    return f"**{row['ratio_to_tf_default']:.2f}** +- {row['ratio_error']:.2f}"


def _step(contest: dict[str, Facts], names: Iterable[str]) -> str:
    """The step time of the fastest of these contestants, in brackets if it was dropped."""
    there = [contest[name] for name in names if name in contest]
    ran = [(bool(row.get("dropped")), row["step_s"]) for row in there if "failed" not in row]
    if ran:
        dropped, step_s = min(ran)
        return f"({ms(step_s)})" if dropped else ms(step_s)
    return f"failed: {there[0]['failed']}" if there else "-"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _sentences(facts: Facts) -> Iterator[str]:
    """Sentences on what helped and what did not, made from the figures."""
    models = with_ratio(facts["models"])
    if not models:
        yield "No network was measured on CPU + GPU."
        return
    helped = [name for name, row in models.items() if _is_faster(row)]
    default = [name for name, row in models.items() if row["delivered"] == DEFAULT]
    even = [name for name in models if name not in helped and name not in default]
    if helped:
        yield f"Faster than TensorFlow's default: {_named(models, helped)}.{_unplaced({n: models[n] for n in helped})}"
    else:
        yield "On CPU + GPU no network got noticeably faster than under TensorFlow's default."
    if even:
        yield f"Within 1 %, or twice the standard error: {_named(models, even)}."
    if default:
        yield f"No mapping beat the default on {_listed(default)}: there the step is left as it is, at a ratio of 1."
    ratios = [row["ratio_to_tf_default"] for row in models.values()]
    yield (
        f"Geometric mean over the networks: {geomean_in_words(ratios)} times the default's speed. Of this, placement "
        f"is what is gained over the same step placed on the best single device: "
        f"{geomean_in_words(_by_placement(models))}."
    )
    yield from _exceeded(models, facts["published"])
    spread = [name for name, row in models.items() if _is_spread(row)]
    yield (
        f"The best mapping uses both CPU and GPU, each for at least 1 % of the seconds, on {_listed(spread)}."
        if spread
        else "On no network does the best mapping use CPU and GPU each for at least 1 % of the seconds: the GPU alone "
        "is the place for all that is heavy."
    )
    yield from ["", "HTF-MPR (Albaqsami 2020), on other hardware, reports over TensorFlow's default:", ""]
    for name, theirs in facts["published"].items():
        yield f"- `{name}` {theirs:.2f}x; {_beside(models.get(name), theirs)}."
    yield ""


def _beside(row: Facts | None, theirs: float) -> str:
    """The ratio measured here beside HTF-MPR's, and why it is lower, if it is."""
    if row is None:
        return "not measured here"
    ours, bound = row["ratio_to_tf_default"], row["bound_ratio"]
    by_placement = "without placement" if is_on_one(row) else f"{row['ratio_to_best_single']:.2f}x of it by placement"
    here = f"here {ours:.2f}x, {by_placement}"
    if ours >= theirs:
        return here
    if bound is None:
        return f"{here}. What predictions allow is unknown"
    if ours > bound:
        return f"{here}. {_wrong(row)}"
    if bound < theirs:
        return f"{here}. Predictions allow at most {bound:.2f}x"
    return f"{here}. Predictions allow up to {bound:.2f}x; the search did not find that"


def _wrong(row: Facts) -> str:
    return (
        f"Predictions allowed at most {row['bound_ratio']:.2f}x; measured {row['ratio_to_tf_default']:.2f}x, so they "
        "were wrong here"
    )


def _exceeded(models: dict[str, Facts], published: dict[str, float]) -> Iterator[str]:
    """The networks that were faster than predictions allow, except those reported with HTF-MPR's figures."""
    for name, row in models.items():
        ours, bound = row["ratio_to_tf_default"], row["bound_ratio"]
        told = ours < published.get(name, 0.0)
        if not told and bound is not None and ours > bound + 2 * row["ratio_error"]:
            yield f"`{name}`: {_wrong(row)[0].lower()}{_wrong(row)[1:]}."


def _by_placement(rows: dict[str, Facts]) -> list[float]:
    """Ratios to the best single device, which runs the same optimised step."""
    return [row["ratio_to_best_single"] for row in rows.values()]


def _by_placement_in_short(rows: dict[str, Facts]) -> str:
    return f"{geometric_mean(_by_placement(rows)):.2f}" if rows else UNKNOWN


def _on_one(rows: dict[str, Facts]) -> list[str]:
    """The networks delivered on a single device: their gain is no placement, but a step optimised once."""
    return [name for name, row in rows.items() if row["delivered"] != DEFAULT and is_on_one(row)]


def _unplaced(rows: dict[str, Facts]) -> str:
    """A sentence on how many of these gained nothing by placement; empty if none."""
    alone = _on_one(rows)
    if not alone:
        return ""
    return (
        f" On {len(alone)} of these what was delivered runs on one device, by all but 1 % of its seconds: that is no "
        "placement."
    )


def _is_faster(row: Facts) -> bool:
    return bool(row["ratio_to_tf_default"] > 1 + max(NOTICED, 2 * row["ratio_error"]))


def _is_spread(row: Facts) -> bool:
    kinds: dict[str, float] = {}
    for name, share in row["placed"].items():
        kinds[name.partition(":")[0]] = kinds.get(name.partition(":")[0], 0.0) + share["seconds"]
    return len(kinds) > 1 and min(kinds.values()) >= NOTICED


def _named(rows: dict[str, Facts], names: Iterable[str]) -> str:
    return ", ".join(f"`{name}` {rows[name]['ratio_to_tf_default']:.2f}x" for name in names)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _splits(splits: dict[str, dict[str, Facts]]) -> list[str]:
    if not splits:
        return []
    good = {f"{part} {name}": row for part, rows in splits.items() for name, row in with_ratio(rows).items()}
    faster = {name: row for name, row in good.items() if _is_faster(row)}
    return [
        "One card as several logical devices; the best single device is one of these, or the CPU:",
        "",
        *markdown_table(
            SPLIT_HEADS, [_split(part, *item) for part, rows in splits.items() for item in rows.items()], left=(0, 1)
        ),
        "",
        f"On a split card {len(faster)} of {len(good)} steps got noticeably faster than the default."
        f"{_unplaced(faster)} The bound takes logical devices for independent ones; they share one card, so it is out "
        "of reach where one step already fills that.",
        "",
    ]


def _split(devices: str, name: str, row: Facts) -> list[str]:
    if "failed" in row:
        return [devices, f"`{name}`", f"failed: {row['failed']}"]
    single = f"{_times(row['ratio_to_best_single'])} ({row['best_single']})"
    delivered = f"{ms(row['step_s'])}, {row['delivered']}"
    return [devices, f"`{name}`", ms(row["tf_default_s"]), delivered, _ratio(row), single, _times(row["bound_ratio"])]
