"""What a live step has to tell: as text, and as a small table for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from placer.measurement import Failed, Measured

if TYPE_CHECKING:
    from search.online.autoplace import AutoStep
    from search.online.controller import Tried

SHOWN = 8  # mappings, the fastest first


def as_text(step: AutoStep) -> str:
    """Lines for a terminal."""
    lines = [f"{step.name}: {step.phase} after {step.steps} steps; {_runs(step)}"]
    lines.extend(f"  {_time(t):>10}  {_predicted(t):>10}  {t.name}" for t in _ranked(step)[:SHOWN])
    failed = [t for t in step.tried if isinstance(t.result, Failed)]
    if failed:
        lines.append(f"  {len(failed)} could not run, first: {_time(failed[0])}")
    return "\n".join([*lines, step.journal.lines()]).rstrip()


def as_html(step: AutoStep) -> str:
    """A table."""
    rows = "".join(
        f"<tr><td>{escape(t.name)}</td><td>{_time(t)}</td><td>{_predicted(t)}</td></tr>" for t in _ranked(step)[:SHOWN]
    )
    head = "<tr><th>proposed by</th><th>step</th><th>predicted</th></tr>"
    return (
        f"<b>{escape(step.name)}</b>: {escape(step.phase)} after {step.steps} steps; {escape(_runs(step))}"
        f"<table>{head}{rows}</table>"
    )


def _runs(step: AutoStep) -> str:
    mapping = step.mapping
    if mapping is None:
        return "runs untouched."
    names = mapping.topology.names
    count = {name: mapping.devices.count(d) for d, name in enumerate(names)}
    where = ", ".join(f"{count[name]} ops on {name}" for name in names if count[name])
    return f"runs {where}."


def _ranked(step: AutoStep) -> list[Tried]:
    measured = [t for t in step.tried if isinstance(t.result, Measured)]
    return sorted(measured, key=lambda t: t.result.step_s if isinstance(t.result, Measured) else 0.0)


def _time(t: Tried) -> str:
    return f"{t.result.step_s * 1e3:.1f} ms" if isinstance(t.result, Measured) else t.result.detail


def _predicted(t: Tried) -> str:
    return "" if t.predicted_s is None else f"{t.predicted_s * 1e3:.1f} ms"
