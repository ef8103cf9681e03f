"""The page of the bench `spoc` in BENCHMARKS.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from experiments.benches.bench import Facts, ms
from experiments.benches.spoc.analysis import FLOPS, METRICS, SETS, SPOC, TARGETS
from experiments.report.text import markdown_table

PICTURE = "docs/spoc.png"


def page(facts: Facts) -> list[str]:
    """What was measured, correlations, errors by set and by family, and the published counts."""
    return [
        *_how(facts),
        "",
        *_errors(facts),
        "",
        *_correlations(facts),
        "",
        *_families(facts),
        "",
        *_published(facts),
        *([f"\nSPOC and times of every network: `{facts['data']}`."] if facts.get("data") else []),
        "",
        f"![Predictions of families that the fit had not seen, and correlations]({PICTURE})",
    ]


def _how(facts: Facts) -> list[str]:
    said = (
        f"{facts['n_networks']} networks of {facts['n_families']} families: `keras.applications` at several sizes and "
        "batches, untrained, and generated chains, branches and random cells. Inference and a training step (SGD) are "
        "run by TensorFlow in one process with all cores, untouched, in turn with a fixed small network, whose pace "
        "takes the machine's drift out; medians, of at least five repeats. Middle spread of a step's repeats: "
        f"{facts['spread']:.1%}. The definitions of the metrics are those of `surrogate/features/spoc.py`. "
        "Errors are of predictions for a family by a fit on all others."
    )
    return [said, *_skipped(facts)]


def _skipped(facts: Facts) -> list[str]:
    if not facts["skipped"]:
        return []
    reasons = Counter(row["skipped"] for row in facts["skipped"])
    told = ", ".join(f"{count} ({reason})" for reason, count in reasons.items())
    caps = f"{facts['cap_s']:.0f} s and {facts['cap_bytes'] / 2**30:.0f} GiB a network"
    return ["", f"Skipped: {told} (caps: {caps}): {', '.join(row['name'] for row in facts['skipped'])}."]


def _errors(facts: Facts) -> list[str]:
    step, inference = facts["targets"]["step"], facts["targets"]["inference"]
    ratios = [target["flops_error"] / target["spoc_error"] for target in (step, inference)]
    kind = facts["regressor"]
    lines = [
        f"By the {kind} regressor, SPOC errs by {step['spoc_error']:.1%} on training steps, and FLOPs alone by "
        f"{step['flops_error']:.1%}: {ratios[0]:.1f} times as much ({ratios[1]:.1f} times on inference).{_part(facts)}",
        "",
        f"| the {kind} regressor sees | training step, mean | median | inference, mean | median |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, metrics in SETS.items():
        told = f"**{name}**" if name in (FLOPS, SPOC) else name
        figures = [part["errors"][kind][name][key] for part in (step, inference) for key in ("mean", "median")]
        lines.append(f"| {told} ({', '.join(metrics)}) | {_percents(figures)} |")
    return [*lines, "", *_regressors(facts)]


def _part(facts: Facts) -> str:
    """What the networks that are measured by default would have said."""
    part = facts.get("part")
    if part is None:
        return ""
    return (
        f" The stratified {part['n_networks']} of these that are measured by default, by themselves: "
        f"{part['spoc_error']:.1%} and {part['flops_error']:.1%}."
    )


def _regressors(facts: Facts) -> list[str]:
    parts = [facts["targets"][target] for target in TARGETS]
    lines = [
        "| mean error by | training step: SPOC | FLOPs alone | inference: SPOC | FLOPs alone |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for kind in parts[0]["errors"]:
        figures = [part["errors"][kind][name]["mean"] for part in parts for name in (SPOC, FLOPS)]
        lines.append(f"| {kind} | {_percents(figures)} |")
    return lines


def _percents(figures: Sequence[float]) -> str:
    return " | ".join(f"{figure:.1%}" for figure in figures)


def _correlations(facts: Facts) -> list[str]:
    step, inference = (facts["targets"][target]["correlations"] for target in ("step", "inference"))
    lines = [
        "Correlation with measured time: Pearson's of the logarithms, and Spearman's.",
        "",
        "| metric | of | training step, Pearson | Spearman | inference, Pearson | Spearman |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for name, found in step.items():
        figures = (found["pearson"], found["spearman"], inference[name]["pearson"], inference[name]["spearman"])
        cells = " | ".join(f"{figure:.2f}" for figure in figures)
        lines.append(f"| {name} | {METRICS.get(name, 'all, family left out')} | {cells} |")
    return lines


def _families(facts: Facts) -> list[str]:
    step, inference = (facts["targets"][target]["families"] for target in ("step", "inference"))
    heads = ("family left out", "networks", "training steps", "SPOC", "FLOPs alone", "inference: SPOC", "FLOPs alone")
    lines = markdown_table(heads)
    for family, row in step.items():
        times = f"{ms(row['fastest_s'])} to {ms(row['slowest_s'])}"
        figures = [part[family][name]["mean"] for part in (step, inference) for name in (SPOC, FLOPS)]
        lines.append(f"| {family} | {row['networks']} | {times} | {_percents(figures)} |")
    return lines


def _published(facts: Facts) -> list[str]:
    found = facts["published"]
    good = {kind: row for kind, row in found.items() if "skipped" not in row}
    exact, within = (sum(row[key] for row in good.values()) for key in ("exact", "within"))
    lines = [
        "Counts of one image at native size, traced only. Parameters are those of the traced graph's variables and of "
        f"variables that it never reads; they equal Keras's `count_params` for {exact} of {len(good)} networks, and "
        f"for {facts['exact_parameters']} of the {facts['n_networks']} measured ones. Multiply-adds are within "
        f"{facts['published_within']:.0%} of the published figure for {within} of {len(good)}.",
        "",
        "| network | parameters | never read | `count_params` | multiply-adds | published | off | source |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    lines += [_count(kind, row) for kind, row in good.items()]
    return lines + _uncounted(found, good)


def _count(kind: str, row: Facts) -> str:
    unread = row["parameters"] - row["parameters_read"]
    source = row["source"] + (f" ({row['counts']})" if row["counts"] else "")
    macs = f"{row['multiply_adds'] / 1e6:,.1f} M | {row['published'] / 1e6:,.0f} M | {row['off']:+.1%}"
    return f"| {kind} | {row['parameters']:,} | {unread} | {row['count_params']:,} | {macs} | {source} |"


def _uncounted(found: Facts, good: Sequence[str] | Facts) -> list[str]:
    left = [f"{kind} ({row['skipped']}: {row['detail']})" for kind, row in found.items() if kind not in good]
    return ["", f"Not counted: {', '.join(left)}."] if left else []
