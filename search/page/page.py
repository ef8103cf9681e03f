"""One self-contained HTML file of a record: it loads nothing, works from a disk or an e-mail, and prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from placer.files import write_whole
from search.page import tables, words
from search.page.record import RunRecord

SCRIPTS = ("echarts.min.js", "charts.js", "page.js")
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
NO_SCRIPTS = "Without scripts there are no figures; the tables under them hold the same numbers."
ZOOM = ("Zoom in", "Zoom out", "Earlier", "Later", "Whole step")
GRAPH = ("Zoom in", "Zoom out", "Open all units", "Close all units")


def write_page(record: RunRecord, path: Path) -> None:
    """Write the page. Raises PlacerError where the file cannot be written."""
    write_whole(path, page_html(record).encode())


def page_html(record: RunRecord) -> str:
    """The page as text."""
    title = escape(record.title)
    scripts = "".join(f"<script>{_asset(name)}</script>\n" for name in SCRIPTS)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_asset('page.css')}</style></head>\n<body>\n{_header(record)}\n<main>\n"
        + "\n".join(_sections(record))
        + f"\n</main>\n<footer>Drawn by Apache ECharts (Apache License 2.0), which is part of this file.</footer>\n"
        f'<script type="application/json" id="record">{record_json(record)}</script>\n{scripts}</body></html>\n'
    )


def record_json(record: RunRecord) -> str:
    """The record as it stands in the page: a list of like things is an object of columns, and "<" is escaped."""
    known = {**asdict(record), "searchers": record.searchers, "best_so_far_s": record.best_so_far_s}
    plain = {name: _columns(value) for name, value in known.items()}
    return json.dumps(plain, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _columns(value: Any) -> Any:
    """[{a: 1, b: 2}, ...] as {a: [1, ...], b: [2, ...]}, which says each name once."""
    if not isinstance(value, tuple | list) or not value or not isinstance(value[0], dict):
        return value
    return {name: [_columns(item[name]) for item in value] for name in value[0]}


def _header(record: RunRecord) -> str:
    return (
        f"<header><div><h1>{escape(record.title)}</h1><p>{escape(record.subtitle)}</p></div>"
        '<button type="button" id="theme" aria-pressed="false">Dark</button></header>\n'
        f"<noscript><p>{NO_SCRIPTS}</p></noscript>\n"
        '<nav id="filters" aria-label="Filters">'
        f"{_choices('searcher', 'Searchers', record.searchers)}{_choices('device', 'Devices', record.devices)}</nav>"
    )


def _choices(kind: str, legend: str, names: tuple[str, ...]) -> str:
    """A checkbox for each name, all set."""
    boxes = "".join(
        f'<label><input type="checkbox" checked data-{kind}="{i}"><span class="swatch {kind}" data-index="{i}" '
        f'aria-hidden="true"></span>{escape(name)}</label>'
        for i, name in enumerate(names)
    )
    return f"<fieldset><legend>{legend}</legend>{boxes}</fieldset>" if names else ""


def _sections(record: RunRecord) -> Iterator[str]:
    """What the record has, in the order in which it is read."""
    sentences = "".join(f"<li>{escape(line)}</li>" for line in record.summary)
    bars = _figure("baselines", words.said_of_baselines(record), tables.baselines_table(record))
    yield _section("Result", f"<ul>{sentences}</ul>{bars if record.baselines else ''}")
    if record.rows:
        axis = _radios("axis", "Over", {"order": "measurements", "seconds": "seconds"})
        figure = _figure("convergence", words.said_of_convergence(record), tables.measured_table(record))
        yield _section("Convergence", axis + figure)
    if record.panels:
        figure = _figure("timelines", words.said_of_timelines(record), tables.timelines_table(record))
        yield _section("One step, before and after", _buttons("timelines", ZOOM) + figure)
    if record.nodes:
        figure = _figure("graph", words.said_of_graph(record), tables.graph_table(record))
        yield _section("The graph by device", _buttons("graph", GRAPH) + figure)
    if record.loads:
        yield _section("Load and memory", _figure("loads", words.said_of_loads(record), tables.loads_table(record)))
    if any(row.predicted_s is not None and row.step_s is not None for row in record.rows):
        yield _section("Predicted against measured", _figure("accuracy", words.said_of_accuracy(record)))
    if record.events:
        yield _section("What was decided, and why", tables.events_table(record))


def _section(title: str, inside: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{inside}</section>"


def _figure(name: str, said: str, table: str = "") -> str:
    """Room for one chart, described for those who cannot see it, with its numbers as a table below."""
    numbers = f"<details><summary>The numbers as a table</summary>{table}</details>" if table else ""
    return (
        f'<figure><div class="chart" id="{name}" role="img" aria-label="{escape(said)}"></div>'
        f"<figcaption>{escape(said)}</figcaption></figure>{numbers}"
    )


def _radios(name: str, legend: str, choices: dict[str, str]) -> str:
    boxes = "".join(
        f'<label><input type="radio" name="{name}" value="{value}"{" checked" if i == 0 else ""}>{text}</label>'
        for i, (value, text) in enumerate(choices.items())
    )
    return f'<fieldset class="tools"><legend>{legend}</legend>{boxes}</fieldset>'


def _buttons(figure: str, names: tuple[str, ...]) -> str:
    buttons = "".join(f'<button type="button" data-does="{name}">{name}</button>' for name in names)
    return f'<div class="tools" role="group" aria-label="Tools" data-figure="{figure}">{buttons}</div>'


def _asset(name: str) -> str:
    return (files("search.page") / "assets" / name).read_text(encoding="utf-8")
