"""Draws a Gantt chart as a picture."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments.report.gantt import OTHER, RECEIVE, SEND, TRANSFER, Bar, Chart, Lane, Panel
from experiments.report.plots.picture import check_picture, save_picture
from experiments.report.text import printable
from placer.number_format import short_ms

COLOURS = {
    "forward": "#4c78a8",
    "backward": "#f58518",
    "update": "#54a24b",
    OTHER: "#b5b5b5",
    SEND: "#e3c565",
    RECEIVE: "#c0a6d9",
    TRANSFER: "#5f7f86",
}
MORE_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#2f6f4f", "#9d755d")
HATCHES = {SEND: "/////", RECEIVE: "\\\\\\\\\\"}
DEVICE, LINK, GAP = 1.0, 0.4, 0.3  # heights of lanes
WIDTH_IN, LANES_IN, UNIT_IN, TALLEST_IN = 13.0, 10.5, 0.5, 60.0
LETTER_IN = 0.062  # at LETTERS_PT
LETTERS_PT = 7
LANE_NAME = 28


def draw(chart: Chart, path: Path) -> None:
    """Draw `chart` as a picture, in the format of the path's ending. Raises BadInputError and PlacerError."""
    check_picture(path)
    inches = min(UNIT_IN * sum(_height(panel) + 1.2 for panel in chart.panels) + 1.4, TALLEST_IN)
    save_picture(path, (WIDTH_IN, inches), lambda figure: _fill(figure, chart), dpi=150)


def _fill(figure: Any, chart: Chart) -> None:
    heights = [_height(panel) for panel in chart.panels]
    rows = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    colour = _colours(chart.kinds)
    for ax, panel in zip(rows, chart.panels, strict=True):
        _draw_panel(ax, panel, chart, colour)
    left_out = f" (and {chart.links_left_out} links that carried less)" if chart.links_left_out else ""
    rows[-1].set_xlabel(f"ms{left_out}")
    figure.suptitle(printable(chart.title, 120), fontsize=12)
    _legend(figure, chart.kinds, colour)


def _draw_panel(ax: Any, panel: Panel, chart: Chart, colour: dict[str, str]) -> None:
    axis_ms = chart.axis_s * 1e3 or 1.0
    ax.set_xlim(0, axis_ms)
    ax.set_ylim(_height(panel), 0)
    if panel.name:
        ax.set_title(f"{panel.name}: {short_ms(panel.makespan_s)}", loc="left", fontsize=10)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.grid(axis="x", color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.axvline(panel.makespan_s * 1e3, color="#444444", linewidth=0.8, linestyle="--")
    tops = _tops(panel.lanes)
    ax.set_yticks(
        [top + _tall(lane) / 2 for top, lane in zip(tops, panel.lanes, strict=True)],
        [printable(lane.name, LANE_NAME) for lane in panel.lanes],
        fontsize=8,
    )
    ax.tick_params(axis="y", length=0)
    for top, lane in zip(tops, panel.lanes, strict=True):
        ax.axhspan(top, top + _tall(lane), color="#f6f6f6", zorder=0, linewidth=0)
        if not lane.is_link:
            at = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": 8, "color": "#555555"}
            ax.text(1.005, top + DEVICE / 2, f"{lane.busy:.0%} busy", **at)
            _label(ax, lane, top, axis_ms)
    _draw_bars(ax, panel, tops, colour)


def _draw_bars(ax: Any, panel: Panel, tops: list[float], colour: dict[str, str]) -> None:
    """Draw one collection per kind, because thousands of artists take minutes. An edge would cover slivers."""
    from matplotlib.collections import PolyCollection

    for is_sliver in (True, False):
        for kind, face in colour.items():
            boxes = [
                _box(bar, top, _tall(lane))
                for top, lane in zip(tops, panel.lanes, strict=True)
                for bar in lane.bars
                if bar.kind == kind and bar.is_sliver == is_sliver
            ]
            if not boxes:
                continue
            hatch = HATCHES.get(kind)
            edge = "#555555" if hatch else "white"
            line = 0.0 if is_sliver or kind == TRANSFER else 0.5
            style: dict[str, Any] = {"facecolor": face, "edgecolor": edge, "linewidth": line, "hatch": hatch}
            ax.add_collection(PolyCollection(boxes, zorder=2, **style), autolim=False)


def _label(ax: Any, lane: Lane, top: float, axis_ms: float) -> None:
    """Write labels into the bars that are wide and high enough."""
    for bar in lane.bars:
        room = int((bar.end_s - bar.start_s) * 1e3 / axis_ms * LANES_IN / LETTER_IN) - 1
        label = bar.label_in(room)
        if label and bar.height > 0.4:
            middle = (bar.start_s + bar.end_s) / 2 * 1e3, top + (1 - bar.base - bar.height / 2) * DEVICE
            ax.text(
                *middle, printable(label, room), ha="center", va="center", fontsize=LETTERS_PT, color="white", zorder=3
            )


def _legend(figure: Any, kinds: Iterable[str], colour: dict[str, str]) -> None:
    from matplotlib.patches import Patch

    patches = [
        Patch(facecolor=colour[kind], edgecolor="#666666", linewidth=0.5, hatch=HATCHES.get(kind), label=kind)
        for kind in kinds
    ]
    figure.legend(handles=patches, loc="outside lower center", ncols=6, frameon=False, fontsize=8)


def _colours(kinds: Iterable[str]) -> dict[str, str]:
    """Fixed colours for phases and communication, the others in turn."""
    more = iter(MORE_COLOURS)
    return {kind: COLOURS.get(kind) or next(more) for kind in kinds}


def _box(bar: Bar, top: float, tall: float) -> list[tuple[float, float]]:
    """The corners of a bar, with times in ms; slivers stand on the lane's floor."""
    left, right = bar.start_s * 1e3, bar.end_s * 1e3
    floor = top + tall * (1 - bar.base)
    ceiling = floor - tall * bar.height
    return [(left, floor), (left, ceiling), (right, ceiling), (right, floor)]


def _tall(lane: Lane) -> float:
    return LINK if lane.is_link else DEVICE


def _tops(lanes: Iterable[Lane]) -> list[float]:
    tops, at = [], GAP
    for lane in lanes:
        tops.append(at)
        at += _tall(lane) + GAP
    return tops


def _height(panel: Panel) -> float:
    return GAP + sum(_tall(lane) + GAP for lane in panel.lanes)
