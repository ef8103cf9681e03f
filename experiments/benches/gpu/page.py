"""The bench `gpu` as a page of BENCHMARKS.md: its tables, and in words what helps on a GPU and what does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from experiments.benches.bench import Facts, ms
from experiments.benches.gpu.figures import DEFAULT
from experiments.benches.gpu.tasks import SEARCHERS
from experiments.report.text import markdown_table

NOTICED = 0.01  # a ratio nearer to 1 than this, or than twice its standard error, is no difference


def page(facts: Facts) -> list[str]:
    """Every figure of a row was measured side by side."""
    models = facts["models"]
    return [
        f"On {facts['device']} and its host: training steps of the zoo's networks, each first searched with at most "
        f"{facts['measurements']} measured mappings beside single devices, then all contestants stepped in turn in the "
        "same minutes. Medians with the interquartile range, ratios with their standard error. Figures in brackets are "
        "of contestants dropped after some steps, for taking three times as long as the best. *Bound*: how many times "
        "faster than the default a mapping can at most be predicted to be, by costs profiled on this machine. Where "
        "*GPU only* differs from the default, that is no placement: a placed step's graph is optimised once and called "
        "without detours, which shows in steps of a millisecond and less.",
        "",
        *_table(models),
        "",
        *_sentences(facts),
        *_splits(facts["splits"]),
        *_tight(facts["tight_memory"], facts["limit_mib"]),
        *_accuracy(facts),
        *_autoplace(facts["autoplace"]),
        *_rest(facts),
        "",
        "![Ratios to TensorFlow's default, and step times predicted and measured](docs/gpu.png)",
    ]


def _table(models: dict[str, Facts]) -> list[str]:
    heads = ["network", "TensorFlow's default", "delivered", "ratio to default", "bound", "ratio to best single"]
    heads += ["GPU only", "CPU only", *SEARCHERS, "ops, seconds on the GPU"]
    lines = markdown_table(heads)
    for name, row in models.items():
        if "failed" in row:
            lines.append(f"| `{name}` | failed: {row['failed']} |" + " |" * (len(heads) - 2))
            continue
        contest = row["contestants"]
        cells = [
            f"{ms(row['tf_default_s'])} +- {ms(contest[DEFAULT]['spread_s'])}",
            f"{ms(row['step_s'])} +- {ms(row['spread_s'])}, {row['delivered']}",
            f"**{row['ratio_to_tf_default']:.2f}** +- {row['ratio_error']:.2f}",
            _times(row["bound_ratio"]),
            _times(row["ratio_to_best_single"]),
            _step(contest, _singles(row, "gpu")),
            _step(contest, _singles(row, "cpu")),
            *(_step(contest, [searcher]) for searcher in SEARCHERS),
            _share(row),
        ]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return lines


def _singles(row: Facts, kind: str) -> list[str]:
    return [name for name in row["placed"] if name.startswith(kind)]


def _step(contest: dict[str, Facts], names: Iterable[str]) -> str:
    """The fastest of these contestants; dropped ones in brackets."""
    there = [contest[name] for name in names if name in contest]
    ran = sorted((c for c in there if "failed" not in c), key=lambda c: (bool(c.get("dropped")), c["step_s"]))
    if ran:
        return f"({ms(ran[0]['step_s'])})" if ran[0].get("dropped") else ms(ran[0]["step_s"])
    return f"failed: {there[0]['failed']}" if there else "-"


def _share(row: Facts) -> str:
    """Of the best mapping, whoever was delivered."""
    gpus = [row["placed"][name] for name in _singles(row, "gpu")]
    return f"{sum(g['ops'] for g in gpus):.0%}, {sum(g['seconds'] for g in gpus):.0%}" if gpus else "-"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _good(rows: dict[str, Facts]) -> dict[str, Facts]:
    return {name: row for name, row in rows.items() if row.get("ratio_to_tf_default")}


def _sentences(facts: Facts) -> Iterator[str]:
    """What helped and what did not, as the figures have it."""
    models = _good(facts["models"])
    if not models:
        yield "No network was measured on CPU + GPU."
        return
    helped = [name for name, row in models.items() if _is_faster(row)]
    default = [name for name, row in models.items() if row["delivered"] == DEFAULT]
    even = [name for name in models if name not in helped and name not in default]
    if helped:
        yield f"Faster than TensorFlow's default: {_named(models, helped)}."
    else:
        yield "On CPU + GPU no network got noticeably faster than under TensorFlow's default."
    if even:
        yield f"Within 1 %, or twice the standard error: {_named(models, even)}."
    if default:
        yield f"No mapping beat the default on {_listed(default)}: there the step is left as it is, at a ratio of 1."
    spread = [name for name, row in models.items() if _is_spread(row)]
    yield (
        f"The best mapping uses both CPU and GPU, each for at least 1 % of the seconds, on {_listed(spread)}."
        if spread
        else "On no network does the best mapping use CPU and GPU each for at least 1 % of the seconds: the GPU alone "
        "is the place for all that is heavy."
    )
    yield ""
    yield from _published(facts["published"], models)


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


def _published(published: dict[str, float], models: dict[str, Facts]) -> Iterator[str]:
    """HTF-MPR's figures beside ours, and why a ratio is not to be had."""
    yield "HTF-MPR (Albaqsami 2020), on other hardware, reports over TensorFlow's default:"
    yield ""
    for name, theirs in published.items():
        row = models.get(name)
        if row is None:
            yield f"- `{name}` {theirs:.2f}x; not measured here."
            continue
        ours, bound = row["ratio_to_tf_default"], row["bound_ratio"]
        if ours >= theirs:
            yield f"- `{name}` {theirs:.2f}x; here {ours:.2f}x."
        elif bound is not None and bound < theirs:
            yield (
                f"- `{name}` {theirs:.2f}x; here {ours:.2f}x, and more than {bound:.2f}x is not to be had: no mapping "
                f"can be predicted below {ms(row['bound_s'])}, and the default takes {ms(row['tf_default_s'])}."
            )
        else:
            most = "unknown" if bound is None else f"{bound:.2f}x"
            yield f"- `{name}` {theirs:.2f}x; here {ours:.2f}x, though the bound is {most}: it was not found."
    yield ""


def _splits(splits: dict[str, dict[str, Facts]]) -> Iterator[str]:
    if not splits:
        return
    yield "One card as several logical devices; the best single device is one of these, or the CPU:"
    yield ""
    yield "| devices | network | default | delivered | ratio to default | ratio to best single | bound |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for devices, rows in splits.items():
        for name, row in rows.items():
            if "failed" in row:
                yield f"| {devices} | `{name}` | failed: {row['failed']} | | | | |"
                continue
            yield (
                f"| {devices} | `{name}` | {ms(row['tf_default_s'])} | {ms(row['step_s'])}, {row['delivered']} | "
                f"**{row['ratio_to_tf_default']:.2f}** +- {row['ratio_error']:.2f} | "
                f"{_times(row['ratio_to_best_single'])} ({row['best_single']}) | {_times(row['bound_ratio'])} |"
            )
    yield ""
    good = [row for rows in splits.values() for row in _good(rows).values()]
    better = sum(map(_is_faster, good))
    yield (
        f"On a split card {better} of {len(good)} steps got noticeably faster than the default. The bound takes "
        "logical devices for independent ones; they share one card, so it is out of reach where one step already fills "
        "that."
    )
    yield ""


def _tight(tight: Facts | None, limit_mib: int) -> Iterator[str]:
    if tight is None:
        yield "Tight memory was not measured."
        yield ""
        return
    where = f" ({tight['default_where']})" if tight.get("default_where") else ""
    said = f"Tight memory: `two_tower` with a GPU of {limit_mib} MiB. TensorFlow's default: {tight['default']}{where}."
    if "failed" in tight:
        yield f"{said} Placed: failed, {tight['failed']}."
    else:
        first, last = tight["losses"]
        ratio = tight["ratio_to_cpu_only"]
        against = "" if ratio is None else f", {ratio:.2f}x of everything on the CPU ({ms(tight['cpu_only_s'])})"
        scoped = tight["scoped_s"]
        beside = (
            "" if scoped is None else f" The tables put on the CPU by hand, the rest left to TensorFlow: {ms(scoped)}."
        )
        yield (
            f"{said} Its tables take {tight['table_bytes'] / 2**20:.0f} MiB. Made on the CPU and placed, it "
            f"{'trains' if tight['trains'] else 'does not train'}: the loss went from {first:.4f} to {last:.4f} in "
            f"{tight['steps']} steps of {ms(tight['step_s'])}{against}.{beside}"
        )
    yield ""


def _accuracy(facts: Facts) -> Iterator[str]:
    error = facts["unseen_mape"]
    if error is not None:
        yield (
            f"Simulator: {facts['n_unseen']} mappings, predicted before they were measured, were off by {error:.1%} on "
            "average, those that were dropped early included."
        )
        yield ""


def _autoplace(found: Facts | None) -> Iterator[str]:
    if found is None or "failed" in found:
        why = "not measured" if found is None else f"failed, {found['failed']}"
        yield f"Overhead of `placer.autoplace`: {why}."
    else:
        yield (
            f"Overhead of a call of `placer.autoplace` once its search is over (it settled on {found['settled_on']}): "
            f"{found['overhead']:+.1%} +- {found['overhead_error']:.1%} of {ms(found['bare_s'])}, {found['steps']} "
            "steps of each, in blocks in turn."
        )
    yield ""


def _rest(facts: Facts) -> Iterator[str]:
    missing = facts["not_reached"]
    minutes = facts["minutes"]
    if missing:
        yield f"Not reached in {minutes:g} minutes: {', '.join(missing)}."
    for title, why in facts["failed"].items():
        yield f"{title} failed: {why}."
