"""A page holds the record's numbers, loads nothing, and stays small."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from search.page.page import page_html, write_page
from search.page.record import RunRecord

LARGEST_BYTES = 3_000_000


class Reader(HTMLParser):
    """Tables as lists of rows of texts, by caption; attributes that could load something; the record."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.loading: list[tuple[str, str, str | None]] = []
        self.ids: list[str] = []
        self.labelled: set[str] = set()
        self.json = ""
        self._rows: list[list[str]] = []
        self._caption, self._in = "", ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.loading += [
            (tag, name, value) for name, value in attrs if name in ("src", "href", "srcset", "data", "action")
        ]
        self._in = tag if known.get("id") != "record" else "record"
        if "id" in known:
            self.ids.append(str(known["id"]))
        if known.get("role") == "img" and known.get("aria-label"):
            self.labelled.add(str(known["id"]))
        if tag == "table":
            self._rows, self._caption = [], ""
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self.tables[self._caption] = self._rows
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in in ("td", "th"):
            self._rows[-1][-1] += data
        elif self._in == "caption":
            self._caption += data
        elif self._in == "record":
            self.json += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    return reader


def column(rows: list[list[str]], head: str) -> list[str]:
    return [row[rows[0].index(head)] for row in rows[1:]]


@pytest.fixture(scope="module")
def page(record: RunRecord) -> str:
    return page_html(record)


def test_the_record_in_the_page_is_the_record(page: str, record: RunRecord) -> None:
    found = json.loads(read(page).json)
    assert found["title"] == record.title
    for part in ("rows", "nodes", "edges", "loads", "baselines", "events"):
        for name, values in found[part].items():
            expected: list[Any] = [getattr(item, name) for item in getattr(record, part)]
            assert [tuple(v) if isinstance(v, list) else v for v in values] == expected
    bars = [bar.start_s for bar in record.panels[1].bars]
    assert found["panels"]["bars"][1]["start_s"] == bars


def test_tables_hold_the_numbers_that_figures_show(page: str, record: RunRecord) -> None:
    tables = read(page).tables
    measured = next(rows for caption, rows in tables.items() if caption.startswith("Mappings measured"))
    assert column(measured, "step") == [f"{r.step_s * 1e3:.2f} ms" if r.step_s else "" for r in record.rows]
    assert column(measured, "searcher") == [row.searcher for row in record.rows]
    against = tables["Step times held against each other"]
    assert column(against, "delivered is faster by") == ["1.00x", "1.80x", "1.63x"]
    assert column(tables["Groups of ops"], "group") == [node.name for node in record.nodes]
    assert column(tables["Decisions, in order"], "what, and why")[1] == "dry run: no gain"


def test_the_best_so_far_counts_only_what_compares(record: RunRecord) -> None:
    first, second, third, *_ = record.rows
    doubtful = replace(second, step_s=1e-6, is_comparable=False)
    failed = replace(third, step_s=None, failed="memory")
    assert replace(record, rows=(failed, doubtful, first)).best_so_far_s == (None, None, first.step_s)


def test_nothing_is_loaded(page: str) -> None:
    assert read(page).loading == []
    assert not re.search(r"url\(|@import|<link|<iframe|<base", page.split("<script>")[0])
    assert "default-src 'none'" in page


def test_names_are_text_and_never_markup(page: str, record: RunRecord) -> None:
    assert page.count("</script>") == page.count("<script")
    assert "</script><b>" not in page and "<up>" not in page and "input<b>" not in page
    assert json.loads(read(page).json)["title"] == record.title


def test_every_figure_is_described_in_words(page: str) -> None:
    reader = read(page)
    figures = {"baselines", "convergence", "timelines", "graph", "loads", "accuracy"}
    assert figures <= set(reader.ids) and reader.labelled == figures


def test_what_is_not_known_has_no_section() -> None:
    reader = read(page_html(RunRecord("Placer: none", "", ("It runs untouched.",), ())))
    assert set(reader.ids) == {"theme", "filters", "record"} and reader.tables == {}


def test_a_page_of_500_measurements_is_small(make_record: Callable[[int], RunRecord], tmp_path: Path) -> None:
    write_page(make_record(500), tmp_path / "x.html")
    assert (tmp_path / "x.html").stat().st_size < LARGEST_BYTES


def test_numbers_that_json_lacks_are_refused(record: RunRecord) -> None:
    with pytest.raises(ValueError, match="JSON"):
        page_html(replace(record, rows=(replace(record.rows[0], step_s=float("nan")),)))


@pytest.mark.slow
def test_pages_are_loaded_when_one_is_asked_for() -> None:
    code = "import placer, search.online.auto_step, sys; sys.exit(any('search.page' in m for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
