"""Makes one self-contained HTML file of a record: it loads nothing, works from a disk or an e-mail, and prints well."""

from __future__ import annotations

import json
from dataclasses import asdict
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from placer.files import write_whole
from search.page.record import RunRecord
from search.page.sections import choices, run_sections

SCRIPTS = ("echarts.min.js", "charts.js", "case_charts.js", "page.js")
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
NO_SCRIPTS = "Without scripts there are no figures; the tables under them hold the same numbers."


def write_page(record: RunRecord, path: Path) -> None:
    """Write the page. Raises PlacerError if the file cannot be written."""
    write_whole(path, page_html(record).encode())


def page_html(record: RunRecord) -> str:
    """The page as text."""
    filters = choices("searcher", "Searchers", record.searchers) + choices("device", "Devices", record.devices)
    return document(record.title, record.subtitle, filters, "\n".join(run_sections(record)), record_json(record))


def document(title: str, subtitle: str, filters: str, main: str, data: str) -> str:
    """A whole page. filters, main: HTML. data: JSON, with every "<" escaped."""
    scripts = "".join(f"<script>{_asset(name)}</script>\n" for name in SCRIPTS)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_asset('page.css')}</style></head>\n<body>\n{_header(title, subtitle)}\n"
        f'<nav id="filters" aria-label="Filters">{filters}</nav>\n<main>\n{main}\n</main>\n'
        "<footer>Drawn by Apache ECharts (Apache License 2.0), which is part of this file.</footer>\n"
        f'<script type="application/json" id="record">{data}</script>\n{scripts}</body></html>\n'
    )


def record_json(record: RunRecord) -> str:
    """The record as JSON, as the page contains it."""
    return as_json(columns_of(record))


def columns_of(record: RunRecord) -> dict[str, Any]:
    """The record as plain data; a list of objects with the same keys becomes one object of columns."""
    known = {**asdict(record), "searchers": record.searchers, "best_so_far_s": record.best_so_far_s}
    return {name: columns(value) for name, value in known.items()}


def as_json(plain: Any) -> str:
    """JSON that may stand in a script of a page. Raises ValueError for numbers that JSON lacks."""
    return json.dumps(plain, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def columns(value: Any) -> Any:
    """[{a: 1, b: 2}, ...] as {a: [1, ...], b: [2, ...]}, which says each name once."""
    if not isinstance(value, tuple | list) or not value or not isinstance(value[0], dict):
        return value
    return {name: [columns(item[name]) for item in value] for name in value[0]}


def _header(title: str, subtitle: str) -> str:
    return (
        f"<header><div><h1>{escape(title)}</h1><p>{escape(subtitle)}</p></div>"
        '<button type="button" id="theme" aria-pressed="false">Dark</button></header>\n'
        f"<noscript><p>{NO_SCRIPTS}</p></noscript>"
    )


def _asset(name: str) -> str:
    return (files("search.page") / "assets" / name).read_text(encoding="utf-8")
