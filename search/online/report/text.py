"""The report of a live step: as text, and as a small table for notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from placer.graph.mapping import ops_by_device
from placer.number_format import ms
from placer.result import Failed, Measured
from placer.train.steps.modes import WHOLE

if TYPE_CHECKING:
    from search.online.auto_step import AutoStep
    from search.online.trials.tried import LiveTrial

SHOWN = 8  # mappings, the fastest first
LINES = 12  # of the journal, the latest


def as_text(step: AutoStep) -> str:
    """Return the report as lines for a terminal."""
    return "\n".join(
        [f"{step.name}: {head(step)}", *(f"  {fact}" for fact in facts(step)), *_table(step), *_last(step)]
    )


def as_html(step: AutoStep) -> str:
    """Return the report as HTML: the facts as lines, the mappings as a table."""
    lines = "".join(f"<br>{escape(fact)}" for fact in facts(step))
    rows = "".join(
        f"<tr><td>{escape(_name(step, t))}</td><td>{escape(_time(t))}</td><td>{_predicted(t)}</td></tr>"
        for t in _ranked(step)[:SHOWN]
    )
    columns = "<tr><th>proposed by</th><th>step</th><th>predicted</th></tr>"
    table = f"<table>{columns}{rows}</table>" if rows else ""
    last = "<br>".join(escape(line) for line in _last(step)[1:])
    return f"<b>{escape(step.name)}</b>: {escape(head(step))}{lines}{table}{last}"


def head(step: AutoStep) -> str:
    """Return the current phase, and the number of steps so far."""
    return f"{step.phase} after {step.steps} steps"


def facts(step: AutoStep) -> Iterator[str]:
    """Yield where the step runs, and how fast it is relative to the alternatives that were measured."""
    yield _runs(step)
    if step.splits is not None:
        yield step.splits
    here, single, untouched = step.step_s, step.best_single_s, step.untouched_s
    if step.mapping is not None and here is not None:
        gain = "" if single is None else f"; the fastest single device: {ms(single, 1)} ({single / here:.2f}x)"
        yield f"{ms(here, 1)} a step{gain}"
    if step.mapping is None and untouched is not None:
        yield f"{ms(untouched, 1)} a step"
    elif untouched is not None:
        in_turn = any(not trial.op_devices for trial in step.tried)
        when = "measured in turn with others" if in_turn else "before it was placed"
        yield f"for reference: {ms(untouched, 1)} a step untouched, in this process, {when}"


def _runs(step: AutoStep) -> str:
    mapping = step.mapping
    if mapping is None:
        return f"runs untouched: {step.left_alone}" if step.left_alone else "runs untouched"
    return f"runs {ops_by_device(mapping)}"


def _table(step: AutoStep) -> Iterator[str]:
    ranked = _ranked(step)
    if ranked:
        yield f"measured ({len(ranked)}; the fastest first): step, predicted, proposed by"
    yield from (f"  {_time(t):>10}  {_predicted(t):>10}  {_name(step, t)}" for t in ranked[:SHOWN])
    failed = [t for t in step.tried if isinstance(t.result, Failed)]
    if failed:
        yield f"  {len(failed)} could not run, first: {_time(failed[0])}"


def _last(step: AutoStep) -> list[str]:
    """The latest decisions; all of them are in `step.journal`."""
    lines = [line.rstrip() for line in step.journal.lines().splitlines()]
    said = f"decided (the last {LINES} of {len(lines)}):" if len(lines) > LINES else "decided:"
    return [said, *(f"  {line}" for line in lines[-LINES:])] if lines else []


def _ranked(step: AutoStep) -> list[LiveTrial]:
    measured = [t for t in step.tried if isinstance(t.result, Measured)]
    return sorted(measured, key=lambda t: t.result.step_s if isinstance(t.result, Measured) else 0.0)


def _name(step: AutoStep, t: LiveTrial) -> str:
    """Return who proposed the mapping of a trial, its device if there is only one, and whether it runs now."""
    alone = f" on {step.device_names[t.op_devices[0]]}" if len(set(t.op_devices)) == 1 else ""
    runs = (
        step.mapping is not None and step.mapping.devices == t.op_devices and (step.splits is None) == (t.plan == WHOLE)
    )
    now = " (runs now)" if runs else ""
    divided = ", divided" if t.plan != WHOLE else ""
    return t.name + divided + alone + now


def _time(t: LiveTrial) -> str:
    return ms(t.result.step_s, 1) if isinstance(t.result, Measured) else t.result.detail


def _predicted(t: LiveTrial) -> str:
    return "" if t.predicted_s is None else ms(t.predicted_s, 1)
