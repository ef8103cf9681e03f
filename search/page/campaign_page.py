"""One self-contained HTML file of a campaign: its cells, which can be filtered, and a part for each case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from html import escape

from placer.number_format import ms
from search.page import words
from search.page.campaign_record import CampaignRecord, CellRow
from search.page.page import as_json, columns, columns_of, document
from search.page.record import RunRecord
from search.page.sections import choices, figure, run_sections, section
from search.page.tables import table
from search.page.words import times

HEADS = ("case", "searcher", "seed", "judged", "state", "mappings", "best", "best single device",
         "x best single", "side by side", "took", "failures", "ended because")  # fmt: skip


def campaign_html(record: CampaignRecord) -> str:
    """The page as text."""
    return document(record.title, record.subtitle, _filters(record), "\n".join(_main(record)), campaign_json(record))


def campaign_json(record: CampaignRecord) -> str:
    """The JSON from which the page's figures are drawn."""
    return as_json(
        {
            "searchers": record.searchers,
            "cells": columns(tuple(asdict(cell) for cell in record.cells)),
            "cases": [columns_of(case) for case in record.cases],
        }
    )


def _filters(record: CampaignRecord) -> str:
    cases = [(str(i), case.title) for i, case in enumerate(record.cases)]
    kinds = [(kind, kind) for kind in dict.fromkeys(cell.kind for cell in record.cells)]
    states = [(state, state) for state in dict.fromkeys(cell.state for cell in record.cells)]
    options = (("case", "Case", cases), ("kind", "Judged", kinds), ("state", "State", states))
    selects = "".join(_select(*option) for option in options)
    return f'<div class="tools">{selects}</div>{choices("searcher", "Searchers", record.searchers)}'


def _select(name: str, legend: str, options: Sequence[tuple[str, str]]) -> str:
    """A list to choose one of `options` from, or all of them."""
    listed = "".join(f'<option value="{escape(value)}">{escape(text)}</option>' for value, text in options)
    return f'<label>{legend} <select data-filter="{name}"><option value="">all</option>{listed}</select></label>'


def _main(record: CampaignRecord) -> Iterator[str]:
    """Yield the sections of the record in reading order."""
    sentences = "".join(f"<li>{escape(line)}</li>" for line in record.summary)
    compared = any(cell.best_s and cell.best_single_s for cell in record.cells)
    overview = figure("overview", _said_of_overview(record)) if compared else ""
    yield section("Result", f"<ul>{sentences}</ul>{overview}")
    yield section("Cells", _cells_table(record))
    cases = "\n".join(_case(i, case, record) for i, case in enumerate(record.cases))
    yield f"<section><h2>Cases</h2>{cases}</section>"
    if record.failures:
        yield section("What failed", _failures_table(record))


def _case(i: int, case: RunRecord, record: CampaignRecord) -> str:
    """The part of one case, which opens and closes, because there may be many; the first is open."""
    kinds = " ".join(dict.fromkeys(cell.kind for cell in record.cells if cell.case == i))
    opened = " open" if i == 0 else ""
    devices = f'<div class="tools">{choices("device", "Devices", case.devices)}</div>' if case.nodes else ""
    return (
        f'<details class="case" data-run="{i}" data-kind="{escape(kinds)}"{opened}>'
        f"<summary><h2>{escape(case.title)}</h2> {escape(case.subtitle)}</summary>"
        f"{devices}{''.join(run_sections(case, i))}</details>"
    )


def _said_of_overview(record: CampaignRecord) -> str:
    """Say for each case how far its best mapping is ahead of the best single device. If mappings were measured side by
    side, the best of these counts.
    """
    told = []
    for i, case in enumerate(record.cases):
        ran = [cell for cell in record.cells if cell.case == i and cell.best_s]
        best = max(ran, key=_standing, default=None)
        if best is not None and (ratio := _ratio(best)) is not None:
            raced = best.kind == "measured" and not best.is_side_by_side
            told.append(f"{case.title} {'~' if raced else ''}{ratio:.2f}")
    return (
        "Times faster than the best single device, by case, searcher and seed; hollow marks are predicted. "
        f"The best of each case, with a ~ where it was raced and not measured side by side yet: {'; '.join(told)}."
    )


def _standing(cell: CellRow) -> tuple[bool, bool, float]:
    """Whether a cell was measured side by side, whether with a single device, and how far its mapping is ahead."""
    ratio = _ratio(cell)
    return cell.is_side_by_side, ratio is not None, -(cell.best_s or 0.0) if ratio is None else ratio


def _ratio(cell: CellRow) -> float | None:
    return cell.best_single_s / cell.best_s if cell.best_s and cell.best_single_s else None


def _cells_table(record: CampaignRecord) -> str:
    rows, marks = [], []
    for cell in record.cells:
        count = str(cell.done) if cell.total is None else f"{cell.done}/{cell.total}"
        faster = times(cell.best_single_s, cell.best_s) if cell.best_single_s else ""
        rows.append((
            record.cases[cell.case].title, cell.searcher, str(cell.seed), cell.kind, cell.state, count,
            ms(cell.best_s), ms(cell.best_single_s), faster, "yes" if cell.is_side_by_side else "no",
            f"{cell.seconds:.1f} s", str(cell.failures or ""), cell.ended,
        ))  # fmt: skip
        marks.append(
            f' data-searcher="{record.searchers.index(cell.searcher)}" data-case="{cell.case}" '
            f'data-kind="{escape(cell.kind)}" data-state="{escape(cell.state)}"'
        )
    searches = table("Searches", HEADS, rows, marks)
    return f'<p id="shown" role="status">{words.shown(len(rows))}</p><div class="cells">{searches}</div>'


def _failures_table(record: CampaignRecord) -> str:
    rows = [(failure.at, failure.where, failure.reason, failure.detail) for failure in record.failures]
    return table("Failures, in order", ("at", "what", "reason", "detail"), rows)
