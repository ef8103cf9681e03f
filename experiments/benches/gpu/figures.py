"""The figures of the bench `gpu`: of one search, and of all of them together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, median
from typing import Any

from experiments.benches.bench import Facts
from experiments.jobs.search.finding import Finding, Trial, fastest
from placer.result import Failed, Measured, standard_error

DEFAULT = "default"
NOTICED = 0.01  # a ratio nearer to 1 than this, or than twice its standard error, is no difference
PUBLISHED = {"vgg16": 1.13, "alexnet": 1.18, "mnist_softmax": 3.33}
"""HTF-MPR (Albaqsami 2020) over TensorFlow's default, on other hardware and another TensorFlow."""


def name_of(row: Trial) -> str:
    """The device's name if one device has all ops that it can run, else the searcher that asked for the mapping."""
    mapping = row.mapping
    one = row.searcher == "single" or mapping.is_single
    return mapping.topology.names[max(set(mapping.devices), key=mapping.devices.count)] if one else row.searcher


def contestants(rows: Iterable[Trial]) -> list[str]:
    """The names of all contestants, in order."""
    return list(dict.fromkeys(name_of(row) for row in rows))


def found_facts(finding: Finding, seconds_on: Sequence[float]) -> Facts:
    """The result of a search. TensorFlow's default is delivered if it beat every mapping.

    seconds_on: for each device, the sum of the seconds of the best mapping's ops on it. Predicted seconds are
    multiplied by `drift`, because they were fitted to times of the search, and short steps can be twice as fast at its
    end.
    """
    best, default, single = finding.best.result, finding.tf_default, finding.best_single
    assert isinstance(best, Measured)
    single_s = single.result.step_s if single is not None and isinstance(single.result, Measured) else None
    delivered = default if default is not None and finding.default_wins else best
    drift = _drift(finding)
    bound_s = drift * finding.lower_bound_s
    return {
        "ratio_to_tf_default": default.step_s / delivered.step_s if default else None,
        "ratio_error": ratio_error(default, delivered) if default else None,
        "ratio_to_best_single": single_s / delivered.step_s if single_s else None,
        "delivered": DEFAULT if finding.default_wins else name_of(finding.best),
        "step_s": delivered.step_s,
        "spread_s": delivered.spread_s,
        "repeats": delivered.repeats,
        "tf_default_s": default.step_s if default else None,
        "best_single": name_of(single) if single is not None else None,
        "best_single_s": single_s,
        "best_mapping": name_of(finding.best),
        "best_mapping_s": best.step_s,
        "predicted_s": _times(drift, finding.best.replayed_s),
        "drift": drift,
        "bound_s": bound_s,
        "bound_ratio": default.step_s / bound_s if default and bound_s > 0 else None,
        "contestants": _contest(finding, drift),
        "placed": _placed(finding, seconds_on),
        "unseen": unseen(finding.measured),
        "ops": finding.ops,
        "groups": len(finding.groups.graph),
        "measured": len(finding.measured),
        "switch_s": finding.switch_s,
        "ended": list(finding.ended),
        "seconds": finding.seconds,
    }


def with_ratio(rows: Mapping[str, Facts]) -> dict[str, Facts]:
    """The networks that have a ratio to the default."""
    return {name: row for name, row in rows.items() if row.get("ratio_to_tf_default")}


def unseen(rows: Iterable[Trial]) -> list[tuple[float, float]]:
    """(predicted when asked for, measured) seconds of every mapping measured here, except the single devices, which
    calibrate, and mappings that were dropped after their first step, which includes setting up.
    """
    ran = [(row.predicted_s, row.measured) for row in rows if row.searcher != "single" and not row.stored]
    return [
        (predicted_s, found.step_s)
        for predicted_s, found in ran
        if predicted_s and found is not None and found.repeats > 1
    ]


def ratio_error(over: Measured, of: Measured) -> float:
    """Standard error of the ratio of two medians, from their interquartile ranges; 0 if both are one step."""
    if over is of:
        return 0.0
    return over.step_s / of.step_s * math.hypot(standard_error(over), standard_error(of))


def mape(pairs: Sequence[Sequence[float]]) -> float | None:
    """Mean absolute error of (predicted, measured) seconds, relative to the measured ones; None without pairs."""
    return mean(abs(predicted_s / took_s - 1) for predicted_s, took_s in pairs) if pairs else None


def _drift(finding: Finding) -> float:
    """The step time of finalists at the end divided by theirs during the search: the median; 1 without finalists."""
    both = ((end, then) for end in finding.finalists for then in finding.measured if end.mapping == then.mapping)
    pairs = [(end.measured, then.measured) for end, then in both]
    return median([end.step_s / then.step_s for end, then in pairs if end and then and then.repeats > 1] or [1.0])


def _times(drift: float, predicted_s: float | None) -> float | None:
    return None if predicted_s is None else drift * predicted_s


def _contest(finding: Finding, drift: float) -> dict[str, Facts]:
    """The best of every contestant: as stepped side by side at the end; if dropped before, as measured then; or why it
    failed.
    """
    found = {DEFAULT: _figures(finding.tf_default)} if finding.tf_default else {}
    for name in contestants(finding.measured):
        final = fastest(row for row in finding.finalists if name_of(row) == name)
        rows = [row for row in finding.measured if name_of(row) == name]
        before = fastest(rows)
        if final is not None and isinstance(final.result, Measured):
            found[name] = {**_figures(final.result), "predicted_s": _times(drift, final.replayed_s)}
        elif before is not None and isinstance(before.result, Measured):
            found[name] = {**_figures(before.result), "predicted_s": before.replayed_s, "dropped": True}
        else:
            why = next(row.result for row in rows if isinstance(row.result, Failed))
            found[name] = {"failed": why.reason, "detail": why.detail}
    return found


def _figures(measured: Measured) -> Facts:
    return {"step_s": measured.step_s, "spread_s": measured.spread_s, "repeats": measured.repeats}


def _placed(finding: Finding, seconds_on: Sequence[float]) -> dict[str, Facts]:
    """Each device's share of the ops of the best mapping, by number and by seconds."""
    devices, total_s = finding.mapping.devices, sum(seconds_on)
    return {
        name: {
            "ops": devices.count(d) / len(devices),
            "seconds": seconds_on[d] / total_s if total_s > 0 else 0.0,
        }
        for d, name in enumerate(finding.topology.names)
    }


def tight_facts(default: Facts, placed: Facts) -> Facts:
    """The case of tight memory: results of the default in its process, and of the placed training in another.

    ratio_to_cpu_only: the step with everything on the CPU divided by the placed step. scoped_s: the untouched step, the
    model made on the CPU by hand and the rest left to TensorFlow.
    """
    found: Facts = {"default": default.get("default", default.get("failed")), "default_where": default.get("where")}
    found["default_detail"] = default.get("detail")
    if "failed" in placed:
        return {**found, "trains": False, "failed": placed["failed"], "why": placed.get("why")}
    cpu_s, step_s = placed["best_single_s"], placed["best_mapping_s"]
    return {
        **found,
        **placed,
        "step_s": step_s,
        "cpu_only_s": cpu_s,
        "ratio_to_cpu_only": cpu_s / step_s if cpu_s else None,
        "scoped_s": placed["tf_default_s"],
    }


def all_facts(found: Mapping[str, Mapping[str, Any]], tight: Facts | None, autoplace: Facts | None) -> Facts:
    """The headline figures. found: the facts of networks by part (`models`, or the devices of a split); failed networks
    give no figure.
    """
    good = [facts for part in found.values() for facts in part.values() if "failed" not in facts]
    pairs = [pair for facts in good for pair in facts["unseen"]]
    over = [facts["ratio_to_tf_default"] for facts in good if facts["ratio_to_tf_default"]]
    return {
        "models": dict(found.get("models", {})),
        "splits": {part: dict(facts) for part, facts in found.items() if part != "models"},
        "tight_memory": tight,
        "unseen_mape": mape(pairs),
        "n_unseen": len(pairs),
        "worst_ratio_to_tf_default": min(over, default=None),
        "overhead": None if autoplace is None else autoplace.get("overhead_total"),
        "overhead_medians": None if autoplace is None else autoplace.get("overhead"),
        "autoplace": autoplace,
        "published": PUBLISHED,
    }


def is_on_one(row: Facts) -> bool:
    """Whether one device has all of the best mapping's seconds, except a share below NOTICED."""
    return bool(max(share["seconds"] for share in row["placed"].values()) > 1 - NOTICED)
