"""The page of the bench `spoc` in BENCHMARKS.md."""

from __future__ import annotations

from collections import Counter

from experiments.benches.bench import Facts, ms
from experiments.benches.intervals import mean_by_families_in_words
from experiments.benches.spoc.advice_page import advice_lines, totals
from experiments.benches.spoc.analysis import FLOPS, GROUPED, METRICS, SETS, SPOC, TARGETS, flops_at_best
from experiments.benches.spoc.networks import networks
from experiments.benches.spoc.plot import PICTURE
from experiments.benches.spoc.published_page import published_lines
from experiments.report.text import markdown_table, percent

QUESTION = "How well do a few counts of a network predict its time, and is the advice that rests on them right?"


def headline(facts: Facts) -> str:
    """The errors of SPOC and of FLOPs alone on families left out, and how often `placer spoc`'s sentences are true."""
    _, flops = flops_at_best(facts["targets"]["step"]["errors"])
    told = (
        f"SPOC off by {_in_words(facts, 'step')} on families left out, FLOPs alone by {flops['mean']:.1%} (median "
        f"{flops['median']:.1%}) at best"
    )
    advice = facts.get("advice")
    return told if not advice else f"{told}; advice right / wrong: {totals(advice)}"


def _in_words(facts: Facts, target: str) -> str:
    """The mean error of SPOC over all networks, each predicted while its family was left out."""
    points, found = facts["targets"][target]["points"], dict[str, list[float]]()
    for family, predicted_s, measured_s in zip(points["family"], points[SPOC], points["measured_s"], strict=True):
        found.setdefault(family, []).append(abs(predicted_s / measured_s - 1))
    return mean_by_families_in_words(found)


def page_lines(facts: Facts) -> list[str]:
    """What was measured, errors by set and by family, correlations, kinds of device, advice, and the published counts.

    Records made before devices, advice and sets were part of the facts have no lines about these.
    """
    return [
        *_how(facts),
        "",
        *_errors(facts),
        "",
        *_correlations(facts),
        "",
        *_families(facts),
        *_least_explained(facts),
        *_devices(facts),
        *(["", *advice_lines(facts)] if facts.get("advice") else []),
        "",
        *published_lines(facts),
        *(["", f"SPOC and times of every network: `{facts['data']}`."] if facts.get("data") else []),
        "",
        f"![Predictions of families that the fit had not seen, and correlations]({PICTURE})",
    ]


def _how(facts: Facts) -> list[str]:
    said = (
        f"{facts['n_networks']} networks of {facts['n_families']} families: `keras.applications` at several sizes and "
        "batches, untrained, and generated chains, branches and random cells. Inference and a training step (SGD) are "
        "run by TensorFlow in one process with all cores, untouched, in turn with a fixed small network, which "
        f"cancels the machine's drift; medians of at least five repeats{_fewer(facts)}. Median spread of a step's "
        f"repeats: {facts['spread']:.1%}. The definitions of the metrics are those of `surrogate/features/spoc.py`. "
        "Errors are of predictions for a family by a fit on all others."
    )
    return [said, *_skipped(facts)]


def _skipped(facts: Facts) -> list[str]:
    """The networks that are missing: those that were skipped, and heavy ones."""
    return ["", f"{_told(facts)}{_heavy(facts)}"]


def _told(facts: Facts) -> str:
    if not facts["skipped"]:
        return "None of those drawn was skipped."
    reasons = Counter(row["skipped"] for row in facts["skipped"])
    told = ", ".join(f"{count} ({reason})" for reason, count in reasons.items())
    caps = f"{facts['cap_s']:.0f} s and {facts['cap_bytes'] / 2**30:.0f} GiB a network"
    names = (f"{row['name']} ({row['device']})" if "device" in row else row["name"] for row in facts["skipped"])
    return f"Skipped: {told} (caps: {caps}): {', '.join(names)}."


def _heavy(facts: Facts) -> str:
    """How many heavy networks the sample lacks; empty if it has any."""
    chosen = set(facts.get("networks", ()))
    heavy = {network.name for network in networks() if network.heavy}
    if not chosen or heavy & chosen:
        return ""
    return (
        f" The sample is drawn only from networks that are not heavy, that is slow to build or to run: {len(heavy)} "
        "heavy ones are not in it."
    )


def _fewer(facts: Facts) -> str:
    return ", three where a network takes seconds" if "devices" in facts else ""


def _errors(facts: Facts) -> list[str]:
    parts = [facts["targets"][target] for target in TARGETS]
    step, kind = parts[0], facts["regressor"]
    flops = [flops_at_best(part["errors"]) for part in parts]
    of_spoc = [part["errors"][kind][SPOC] for part in parts]
    ratios, medians = (
        [error[which] / ours[which] for (_, error), ours in zip(flops, of_spoc, strict=True)]
        for which in ("mean", "median")
    )
    sets = [
        [f"{f'**{name}**' if name in (FLOPS, SPOC) else name}{_listed(facts, name)}",
         *(percent(part["errors"][kind][name][key]) for part in parts for key in ("mean", "median"))]
        for name in step["errors"][kind]
    ]  # fmt: skip
    regressors = [
        [other, *(percent(part["errors"][other][name]["mean"]) for part in parts for name in (SPOC, FLOPS))]
        for other in step["errors"]
    ]
    return [
        f"By the {kind} regressor, SPOC errs by {_in_words(facts, 'step')} on training steps, by "
        f"{_in_words(facts, 'inference')} on inference. FLOPs alone err by {flops[0][1]['mean']:.1%} (median "
        f"{flops[0][1]['median']:.1%}) on training steps with the regressor that suits them best ({flops[0][0]}): "
        f"{ratios[0]:.1f} times as much, by medians {medians[0]:.1f} times. On inference ({flops[1][0]}) it is "
        f"{ratios[1]:.1f} and {medians[1]:.1f} times. Intervals resample whole families."
        f"{_lower(facts)}{_of_default(facts.get('part'))}",
        "",
        *markdown_table(
            (f"the {kind} regressor sees", "training step, mean", "median", "inference, mean", "median"), sets
        ),
        "",
        *markdown_table(
            ("mean error by", "training step: SPOC", "FLOPs alone", "inference: SPOC", "FLOPs alone"), regressors
        ),
    ]


def _lower(facts: Facts) -> str:
    """Which sets of metrics err less than all of SPOC, on training steps."""
    errors = facts["targets"]["step"]["errors"][facts["regressor"]]
    lower = [f"{name} ({row['mean']:.1%})" for name, row in errors.items() if row["mean"] < errors[SPOC]["mean"]]
    return f" Less than all of SPOC errs: {', '.join(lower)}." if lower else ""


def _listed(facts: Facts, name: str) -> str:
    """The metrics of a set when it was recorded. In records that do not name them, none were dense."""
    metrics = facts["sets"][name] if "sets" in facts else [metric.removeprefix("dense_") for metric in SETS[name]]
    return f" ({', '.join(metrics)})"


def _of_default(part: Facts | None) -> str:
    """The error on only the networks that are measured by default."""
    if part is None:
        return ""
    return (
        f" The stratified {part['n_networks']} of these that are measured by default, by themselves: "
        f"SPOC {part['spoc_error']:.1%}."
    )


def _correlations(facts: Facts) -> list[str]:
    parts = [facts["targets"][target]["correlations"] for target in TARGETS]
    rows = [
        [name, METRICS.get(name, "all, family left out"),
         *(f"{part[name][key]:.2f}" for part in parts for key in ("pearson", "spearman"))]
        for name in parts[0]
    ]  # fmt: skip
    heads = ("metric", "of", "training step, Pearson", "Spearman", "inference, Pearson", "Spearman")
    return [
        "Correlation with measured time: Pearson's of the logarithms, and Spearman's.",
        "",
        *markdown_table(heads, rows, left=(0, 1)),
    ]


def _families(facts: Facts) -> list[str]:
    parts = [facts["targets"][target]["families"] for target in TARGETS]
    rows = [
        [family, str(row["networks"]), f"{ms(row['fastest_s'])} to {ms(row['slowest_s'])}",
         *(percent(part[family][name]["mean"]) for part in parts for name in (SPOC, FLOPS))]
        for family, row in parts[0].items()
    ]  # fmt: skip
    heads = ("family left out", "networks", "training steps", "SPOC", "FLOPs alone", "inference: SPOC", "FLOPs alone")
    said = f"Mean errors by the {facts['regressor']} regressor for both, which is not the one that suits FLOPs best:"
    return [said, "", *markdown_table(heads, rows)]


def _least_explained(facts: Facts) -> list[str]:
    """Why compiled grouped convolutions and tiny steps need care, with what the data says of both."""
    each, parts = facts["targets"]["step"].get("seconds_each"), facts["targets"]["step"]["families"]
    if each is None:
        return []
    moved = [(family, row[GROUPED]["mean"], row[SPOC]["mean"]) for family, row in parts.items()]
    most = max(moved, key=lambda row: row[1] - row[2])
    lines = [
        "",
        f"In the fit to all networks, 1,000 bytes take {each['traffic_bytes'] * 1e9:.2f} us, and an op takes "
        f"{each['ops'] * 1e6:.1f} us beside its work{_break_even(facts)}. The formula has no fixed cost per step, "
        "because too few small networks were measured to tell one. So very small chains are predicted badly.",
    ]
    if most[1] > most[2]:
        lines += [
            "",
            "Grouped convolutions run compiled by XLA, which on a CPU computes them as whole ones with zeros in "
            f"between: `dense_multiply_adds` counts these. It matters most for {most[0]}, whose training steps are "
            f"predicted {most[2]:.1%} off by it and {most[1]:.1%} off by multiply-adds as they are defined.",
        ]
    return lines


def _break_even(facts: Facts) -> str:
    found = facts["launch_operations"]
    return "" if found is None else f": as long as {found / 1e6:.2f} MFLOP of multiply-adds"


def _devices(facts: Facts) -> list[str]:
    """Errors and correlations by kind of device, and the errors of a fit on one kind used on another."""
    found = facts.get("devices")
    if not found:
        return []
    rows = [
        [kind, *(percent(part[target][name]["mean"]) for target in TARGETS for name in ("spoc", "flops")),
         *(f"{part['step']['spearman'][name]:.2f}" for name in ("traffic_bytes", "operations", "span"))]
        for kind, part in found.items()
    ]  # fmt: skip
    between = [
        [f"{row['from']} to {row['to']}", "training step" if row["target"] == "step" else row["target"],
         f"{row['factor']:.2f}", percent(row["error"]["mean"]), f"{row['best_factor']:.2f}",
         percent(row["error_best_factor"]["mean"]), percent(row["error_own"]["mean"])]
        for row in facts["transfers"]
    ]  # fmt: skip
    heads = ("device", "training step: SPOC", "FLOPs alone", "inference: SPOC", "FLOPs alone",
             "Spearman, training step: traffic_bytes", "operations", "span")  # fmt: skip
    return [
        "",
        f"The {facts['n_shared']} networks that were measured on {len(found)} kinds of device, one kind right after "
        "the other; one core is a process that may use one only. Errors are mean ones of families left out, by the "
        f"{facts['regressor']} regressor for both.",
        "",
        *markdown_table(heads, rows),
        "",
        "What a fit on one kind says of another, times one factor: the small reference network's time there over its "
        "time here. Beside it the error with the median ratio of measured to predicted time, which cannot be known "
        "before all are measured, and that of a fit on the kind itself.",
        "",
        *markdown_table(
            ("fit on one kind, used on another", "of", "factor", "error", "median factor", "error", "own fit"),
            between,
            left=(0, 1),
        ),
    ]
