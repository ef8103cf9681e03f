"""The sections of a page: controls, figures described in words, and the numbers of each as a table."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from search.page import tables, words
from search.page.record import RunRecord

ZOOM = ("Zoom in", "Zoom out", "Earlier", "Later", "Whole step")
GRAPH = ("Zoom in", "Zoom out", "Open all units", "Close all units")
OVER = {"order": "measurements", "seconds": "seconds"}


def choices(kind: str, legend: str, names: tuple[str, ...]) -> str:
    """A checkbox for each name, all checked."""
    boxes = "".join(
        f'<label><input type="checkbox" checked data-{kind}="{i}"><span class="swatch {kind}" data-index="{i}" '
        f'aria-hidden="true"></span>{escape(name)}</label>'
        for i, name in enumerate(names)
    )
    return f"<fieldset><legend>{legend}</legend>{boxes}</fieldset>" if names else ""


def run_sections(record: RunRecord, run: int | None = None) -> Iterator[str]:
    """Yield the sections of the record in reading order. run: number of the record, if the page has several."""
    sentences = "".join(f"<li>{escape(line)}</li>" for line in (*record.summary, *record.missing))
    bars = figure("baselines", words.said_of_baselines(record), tables.baselines_table(record), run)
    yield section("Result", f"<ul>{sentences}</ul>{bars if record.baselines else ''}", run)
    yield from _convergence(record, run)
    if record.panels:
        drawn = figure("timelines", words.said_of_timelines(record), tables.timelines_table(record), run)
        yield section("One step, before and after", _buttons("timelines", ZOOM) + drawn, run)
    if record.nodes:
        drawn = figure("graph", words.said_of_graph(record), tables.graph_table(record), run)
        yield section("The graph by device", _buttons("graph", GRAPH) + drawn, run)
    if record.loads:
        drawn = figure("loads", words.said_of_loads(record), tables.loads_table(record), run)
        yield section("Load and memory", drawn, run)
    if any(row.predicted_s is not None and row.step_s is not None for row in record.rows):
        drawn = figure("accuracy", words.said_of_accuracy(record), run=run)
        yield section("Predicted against measured", drawn, run)
    if record.events:
        yield section("What was decided, and why", tables.events_table(record), run)


def _convergence(record: RunRecord, run: int | None) -> Iterator[str]:
    """Yield the section on convergence: the measurements of one search, or the curves of several."""
    axis = _radios("axis" if run is None else f"axis-{run}", "Over", OVER)
    if record.curves:
        drawn = figure("curves", words.said_of_curves(record), tables.curves_table(record), run)
        yield section("Convergence", axis + drawn, run)
    elif record.rows:
        drawn = figure("convergence", words.said_of_convergence(record), tables.measured_table(record), run)
        yield section("Convergence", axis + drawn, run)


def section(title: str, inside: str, run: int | None = None) -> str:
    """A section; one level lower if the page has several runs."""
    level = "h2" if run is None else "h3"
    return f"<section><{level}>{escape(title)}</{level}>{inside}</section>"


def figure(name: str, said: str, table: str = "", run: int | None = None) -> str:
    """Room for one chart, described for those who cannot see it, with its numbers as a table below."""
    numbers = f"<details><summary>The numbers as a table</summary>{table}</details>" if table else ""
    place = name if run is None else f"{name}-{run}"
    return (
        f'<figure><div class="chart" id="{place}" data-chart="{name}" role="img" aria-label="{escape(said)}"></div>'
        f"<figcaption>{escape(said)}</figcaption></figure>{numbers}"
    )


def _radios(name: str, legend: str, options: dict[str, str]) -> str:
    boxes = "".join(
        f'<label><input type="radio" data-axis name="{name}" value="{value}"{"" if i else " checked"}>{text}</label>'
        for i, (value, text) in enumerate(options.items())
    )
    return f'<fieldset class="tools"><legend>{legend}</legend>{boxes}</fieldset>'


def _buttons(chart: str, names: tuple[str, ...]) -> str:
    buttons = "".join(f'<button type="button" data-does="{name}">{name}</button>' for name in names)
    return f'<div class="tools" role="group" aria-label="Tools" data-figure="{chart}">{buttons}</div>'
