"""The output of `placer search`, `plan` and `simulate`: facts first, then tables made from them."""

from __future__ import annotations

from dataclasses import asdict
from math import inf
from typing import Any

from msgspec import to_builtins
from rich.table import Table

from experiments.jobs.plan import Simulated
from experiments.jobs.search.finding import Finding, Pipelined, Trial, step_s
from experiments.report.console import literal_console
from experiments.report.gantt import gantt_text
from experiments.report.text import MOST, cell, printable, split_idle
from placer.number_format import mib, ms
from placer.result import Failed, Measured
from placer.splits.plan import SplitPlan
from placer.splits.plan_files import regions_of

Facts = dict[str, Any]
HEADS = ("mapping", "step", "spread", "repeats", "x best single", "predicted", "off by")


def finding_facts(found: Finding) -> Facts:
    """The facts that `placer search --json` prints; times are in seconds."""
    return {
        "model": found.model,
        "ops": found.ops,
        "groups": len(found.groups.graph),
        "units": len(found.groups.graph.colocated),
        "devices": list(found.topology.names),
        "measured": [_row_facts(row) for row in found.measured],
        "best": {**_row_facts(found.best), "groups_moved": _moved(found.best)},
        "best_single": None if found.best_single is None else _row_facts(found.best_single),
        "tf_default_s": found.tf_default_s,
        "default_wins": found.default_wins,
        "in_process_s": found.untouched.step_s,
        "lower_bound_s": found.lower_bound_s,
        "switch_s": found.switch_s,
        "seed": found.seed,
        "interrupted": found.interrupted,
        "ended": list(found.ended),
        "notes": list(found.notes),
        "lost": found.lost or None,
        "pins": list(found.pins),
        "splits": [to_builtins(region) for region in regions_of(found.plan)] if found.plan else None,
        "pipeline": None if found.pipelined is None else asdict(found.pipelined),
        "best_whole": None if found.whole is None else _row_facts(found.whole),
        "seconds": found.seconds,
    }


def _row_facts(row: Trial) -> Facts:
    return {
        "searcher": row.searcher,
        **result_facts(row),
        "replayed_s": row.replayed_s,
        "ratio_to_best_single": row.ratio,
        "stopped_early": bool(row.measured and row.measured.stopped_early),
        "stored": row.stored,
        "at_s": row.at_s,
        "groups_per_device": groups_per_device(row),
        "ops_per_device": groups_per_device(row),  # the former name, kept for one more release
    }


def result_facts(row: Trial) -> Facts:
    """The measured result of a mapping, and its prediction from before."""
    measured, result = row.measured, row.result
    return {
        "step_s": measured.step_s if measured else None,
        "spread_s": measured.spread_s if measured else None,
        "repeats": measured.repeats if measured else 0,
        "predicted_s": row.predicted_s,
        "failed": f"{result.reason}: {result.detail}" if isinstance(result, Failed) else None,
    }


def groups_per_device(row: Trial) -> dict[str, int]:
    """The number of groups on each device."""
    names = row.mapping.topology.names
    return {name: row.mapping.devices.count(d) for d, name in enumerate(names)}


def _moved(row: Trial) -> int:
    """The number of groups that are not on the device with most groups."""
    return len(row.mapping.devices) - max(groups_per_device(row).values())


def show_finding(found: Finding) -> None:
    """Print the table of mappings, and the outcome in sentences."""
    console = literal_console()
    title = f"{found.model}: {found.ops} ops in {len(found.groups.graph)} groups"
    table = Table(title=cell(title, 200), title_justify="left")
    for column in HEADS:
        table.add_column(column, justify="left" if column == "mapping" else "right")
    for row in sorted(found.measured, key=step_s):
        table.add_row(*cells(row), style="bold" if _is_best(row, found) else None)
    console.print(table)
    for line in summary_lines(found):
        console.print(line, soft_wrap=True)


def _is_best(row: Trial, found: Finding) -> bool:
    """Whether `row` is the delivered mapping. Searchers are compared, too, because a mapping of whole ops and one of
    divided ops may have the same devices.
    """
    return (row.mapping, row.searcher) == (found.best.mapping, found.best.searcher)


def cells(row: Trial) -> list[str]:
    """A row of a table with HEADS."""
    on = f" on {row.mapping.topology.names[row.mapping.devices[0]]}" if row.mapping.is_single else ""
    name, result = row.searcher + on, row.result
    if isinstance(result, Failed):
        return [name, f"failed: {result.reason}", "", "", "", ms(row.predicted_s), ""]
    off = "" if row.predicted_s is None else f"{(row.predicted_s / result.step_s - 1):+.0%}"
    early = "*" if result.stopped_early else ""
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    return [name, ms(result.step_s) + early, ms(result.spread_s), str(result.repeats), ratio, ms(row.predicted_s), off]


def _within(found: Finding) -> str:
    """A clause that says how far above the lower bound the delivered mapping is predicted."""
    replayed_s, bound_s = found.best.replayed_s, found.lower_bound_s
    return (
        f"; the delivered one is predicted {replayed_s / bound_s - 1:.0%} above" if replayed_s and bound_s > 0 else ""
    )


def summary_lines(found: Finding) -> list[str]:
    """The outcome in sentences: what was delivered, its baselines, and how they were measured."""
    best, single = best_and_single(found)
    stopped = any(row.measured and row.measured.stopped_early for row in found.measured)
    lines = ["* stopped early: clearly worse than the incumbent, or in the slower half of its race"] if stopped else []
    if single is None:
        lines.append(_alone(found, best))
    elif found.best.mapping.is_single and found.plan is None:
        lines.append(f"Nothing surely beat the best single device ({ms(single.step_s)}): that mapping is handed back.")
    else:
        how = "In a race, not side by side at the end," if found.raced else "Side by side"
        lines.append(
            f"{how} over {best.repeats} steps: {ms(best.step_s)} +- {ms(best.spread_s)} against "
            f"{ms(single.step_s)} +- {ms(single.spread_s)} on the best single device: "
            f"{single.step_s / best.step_s:.2f}x (by {found.best.searcher})."
        )
    if found.plan is not None:
        lines.append(_divided(found, found.plan))
    if found.pipelined is not None:
        lines.append(_pipelined(found.pipelined))
    lines += found.notes
    under = " under these pins" if found.pins else ""
    lines.append(f"No mapping can be predicted below {ms(found.lower_bound_s)}{under}{_within(found)}.")
    lines += [f"Ended early: {reason}" for reason in (*found.ended, *filter(None, [found.lost]))]
    if found.switch_s is not None:
        lines.append(f"Switching a running step from one mapping to another took {found.switch_s:.2f} s.")
    lines.append(reference_line(found.tf_default_s, found.untouched.step_s, bool(found.pins)))
    if found.default_wins:
        lines.append(
            "It beat what is handed back: leave the step as it is. The mapping file holds the best one placed."
        )
    elif found.tf_default_s is None and found.untouched.step_s < best.step_s:
        lines.append("That is faster here: worker processes on one machine stand for other hosts, not for speed.")
    return lines


def _pipelined(found: Pipelined) -> str:
    """A sentence with the time of a micro-batch, and the busiest device's share of it."""
    m = found.micro_batches
    return (
        f"In {m} micro-batches, of which {min(m, found.in_flight)} may be under way, a step took {ms(found.step_s)}: "
        f"{ms(found.step_s / m)} for each, where the busiest device has {ms(found.load_s / m)} of work (its max-load)."
    )


def _divided(found: Finding, plan: SplitPlan) -> str:
    """A sentence with the number of divided ops, the ways along which they are divided, and the time of whole ops."""
    along = ", ".join(
        f"{len(ops)} along {division.way}"
        for division, ops in sorted(plan.regions(), key=lambda region: -len(region[1]))[:4]
    )
    whole_s = step_s(found.whole) if found.whole else inf
    beside = f" The fastest mapping of whole ops took {ms(whole_s)} beside it." if whole_s < inf else ""
    return f"{len(plan)} of its ops are divided ({along}).{beside}"


def reference_line(tf_default_s: float | None, in_process_s: float, pinned: bool) -> str:
    """A sentence with the time of the untouched step: on the topology's devices if this process has them, or else in
    one process.
    """
    if tf_default_s is None:
        return f"For reference: one TensorFlow process with all of this machine's cores takes {ms(in_process_s)}."
    ignoring = ", which ignores pins" if pinned else ""
    return f"TensorFlow's own placement{ignoring}, side by side: {ms(tf_default_s)}."


def best_and_single(found: Finding) -> tuple[Measured, Measured | None]:
    """The results of the best mapping and of the fastest single device."""
    assert found.best.measured is not None
    return found.best.measured, None if found.best_single is None else found.best_single.measured


def _alone(found: Finding, best: Measured) -> str:
    """A sentence on the delivered mapping if there is no single device to compare it with."""
    of = f"{ms(best.step_s)} +- {ms(best.spread_s)} over {best.repeats} steps (by {found.best.searcher})"
    if next(found.problem.singles(), None) is None:
        return f"No single device can run it under these constraints, so there is none to compare with: {of}."
    return f"No single device ran to the end, so there is none to compare with: {of}."


def show_facts(facts: Facts) -> None:
    """Print the outcome of `plan` or `simulate`."""
    console = literal_console()
    value = facts["value"]
    console.print(f"{facts['objective']} ({facts['schedule']}): {ms(value)}")
    if "lower_bound" in facts:
        bound, single = facts["lower_bound"], facts["best_single"]
        within = f"within {value / bound - 1:.1%} of the lower bound {ms(bound)}" if bound > 0 else "no lower bound"
        against = (
            "no single device can run it under these constraints"
            if single is None
            else f"{single / value:.2f}x the best single device"
            if value > 0
            else f"{ms(single)} on the best single device"
        )
        console.print(f"{within}; {against} (searcher {facts['searcher']})")
    table = Table("device", "load", "busy", "memory", "peak memory")
    rows, idle = split_idle(list(facts["devices"].items()), lambda row: not any(row[1].values()))
    for name, d in rows:
        memory, peak = mib(d["memory_bytes"]), mib(d["memory_peak_bytes"])
        table.add_row(cell(name, 40), ms(d["load"]), ms(d["busy_s"]), memory, peak)
    console.print(table)
    if idle:
        console.print(f"... and {idle} devices that run nothing and hold nothing.")
    for note in facts.get("notes", ()):
        console.print(printable(note, MOST), soft_wrap=True)


def show_simulated(simulated: Simulated) -> None:
    """Print the outcome of `simulate`, and its Gantt chart, as wide as the terminal."""
    show_facts(simulated.facts)
    print(gantt_text(simulated.timeline, literal_console().width))
