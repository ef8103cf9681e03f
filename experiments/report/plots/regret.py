"""Draws how fast searchers approach the best known step: regret over measured mappings, one panel per network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, product
from math import ceil
from pathlib import Path
from typing import Any

from experiments.report.plots.picture import check_picture, picture_bytes, plain_axes
from experiments.report.text import printable
from placer.files import write_whole

OURS = "#111111"
# Lines differ by colour and dash (twelve without a repeat), and by the mark at their end, where many lie together.
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#b279a2", "#9d755d")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)))
MARKS = "os^DvPX<>ph*d8H"
NEAR = 0.01  # regret below this is drawn to scale, above it by its logarithm
COLUMNS = 3
WIDE_IN, HIGH_IN = 4.2, 2.7  # of one panel among several


@dataclass(frozen=True)
class RegretCurve:
    """The regret of one searcher."""

    name: str
    regret: tuple[float | None, ...]  # best so far / best known - 1, as in Comparison.regret
    ours: bool = False
    low: tuple[float | None, ...] = ()  # the least over seeds, if `regret` is their median
    high: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class RegretPanel:
    """One network's curves."""

    title: str
    curves: tuple[RegretCurve, ...]


def draw_regret(panels: Sequence[RegretPanel], path: Path) -> None:
    """Draw the panels as one picture, in the format of the path's ending. Raises BadInputError and PlacerError."""
    check_picture(path, "--curves")
    write_whole(path, regret_picture(panels, path.suffix[1:].lower()))


def regret_picture(panels: Sequence[RegretPanel], format: str) -> bytes:
    """The panels as one picture in a format such as "png"."""
    columns = min(COLUMNS, len(panels))
    rows = ceil(len(panels) / columns)
    size_in = (9.5, 5.2) if len(panels) == 1 else (WIDE_IN * columns, HIGH_IN * rows + 0.9)
    return picture_bytes(
        format, size_in, lambda figure: _fill(figure, figure.subplots(rows, columns, squeeze=False), panels), dpi=130
    )


def _fill(figure: Any, grid: Any, panels: Sequence[RegretPanel]) -> None:
    styles = _styles(panels)
    axes = list(grid.flat)
    highest = max((r for p in panels for c in p.curves for r in c.regret if r is not None), default=NEAR)
    for ax, panel in zip(axes, panels, strict=False):
        _draw_panel(ax, panel, styles, highest)
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    for i, ax in enumerate(axes[: len(panels)]):
        if i + grid.shape[1] >= len(panels):
            ax.set_xlabel("mappings measured, single devices aside")
    for ax in grid[:, 0]:
        ax.set_ylabel("slower than the best known")
    _legend(figure, panels, styles)


def _draw_panel(ax: Any, panel: RegretPanel, styles: dict[str, dict[str, Any]], highest: float) -> None:
    for curve in sorted(panel.curves, key=lambda curve: not curve.ours):
        band = [(i, *ends) for i, ends in enumerate(zip(curve.low, curve.high, strict=True)) if None not in ends]
        if band:
            colour = styles[curve.name]["color"]
            ax.fill_between(*zip(*band, strict=True), step="post", color=colour, alpha=0.13, linewidth=0, zorder=1)
        points = [(i, r) for i, r in enumerate(curve.regret) if r is not None]
        if points:
            at, regret = zip(*points, strict=True)
            ax.step(at, regret, where="post", markevery=[len(at) - 1], **styles[curve.name])
    ax.axhline(0, color="#2f6f4f", linewidth=0.9, linestyle=":", zorder=1)
    ax.set_title(printable(panel.title, 40), loc="left", fontsize=10)
    ax.set_yscale("symlog", linthresh=NEAR, linscale=0.6)
    ax.set_ylim(-NEAR / 5, max(highest, NEAR) * 1.25)
    ticks = [t for t in (0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10) if t <= max(highest, NEAR) * 1.25]
    ax.set_yticks(ticks, [f"{t:.1%}" if 0 < t < 0.01 else f"{t:.0%}" for t in ticks], fontsize=8)
    ax.minorticks_off()
    most = max((len(curve.regret) - 1 for curve in panel.curves), default=1)
    ax.set_xlim(0, max(most, 1) * 1.03)
    ax.tick_params(labelsize=8)
    ax.xaxis.get_major_locator().set_params(integer=True)
    plain_axes(ax)


def _styles(panels: Sequence[RegretPanel]) -> dict[str, dict[str, Any]]:
    """One look per searcher, the same in every panel."""
    looks = zip(cycle(product(DASHES, COLOURS)), cycle(MARKS), strict=False)
    styles: dict[str, dict[str, Any]] = {}
    for curve in (curve for panel in panels for curve in panel.curves):
        if curve.name in styles:
            continue
        if curve.ours:
            look: dict[str, Any] = {"color": OURS, "linewidth": 2.4, "marker": "*", "markersize": 11, "zorder": 2}
        else:
            (dash, colour), mark = next(looks)
            look = {"color": colour, "linestyle": dash, "linewidth": 1.3, "marker": mark, "markersize": 5.5}
            look["zorder"] = 3
        styles[curve.name] = {**look, "markeredgecolor": "white", "markeredgewidth": 0.6, "clip_on": False}
    return styles


def _legend(figure: Any, panels: Sequence[RegretPanel], styles: dict[str, dict[str, Any]]) -> None:
    """Draw the legend: beside a single panel, sorted by the last regret, or below several panels."""
    from matplotlib.lines import Line2D

    names = list(styles)
    if len(panels) == 1:
        last = {c.name: next((r for r in reversed(c.regret) if r is not None), None) for c in panels[0].curves}
        names.sort(key=lambda name: float("inf") if (r := last[name]) is None else r)
        labels = [f"{printable(name, 24)}  {'-' if (r := last[name]) is None else f'{r:.1%}'}" for name in names]
    else:
        labels = [printable(name, 24) for name in names]
    handles = [Line2D([], [], **styles[name]) for name in names]
    handles.append(Line2D([], [], color="#2f6f4f", linewidth=0.9, linestyle=":"))
    where: dict[str, Any] = {"loc": "outside right upper"} if len(panels) == 1 else {"loc": "outside lower center"}
    columns = 1 if len(panels) == 1 else 7
    figure.legend(handles, [*labels, "best known"], ncols=columns, frameon=False, fontsize=8, handlelength=3, **where)
