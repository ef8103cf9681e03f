"""Draws scaling curves: a fitted formula with its interval, and synchronous SGD over numbers of devices."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.report.plots.picture import check_picture, plain_axes, save_picture

LINE, GREY = "#4c78a8", "#999999"
PARTS = (("compute", "#4c78a8"), ("sums not hidden", "#e45756"), ("waiting for input", "#b5b5b5"))


@dataclass(frozen=True)
class ScalingCurve:
    """A prediction along one column."""

    title: str
    x_name: str
    y_name: str
    at: tuple[float | str, ...]  # values of the column
    value: tuple[float, ...]  # predicted there
    low: tuple[float, ...]  # of a new run's interval
    high: tuple[float, ...]
    measured: tuple[float, float] | None  # the range of the column in the runs


@dataclass(frozen=True)
class SgdCurve:
    """Synchronous SGD over numbers of devices."""

    title: str
    rows: tuple[dict[str, Any], ...]  # as `placer scale sgd --json` prints them


def draw_curve(curve: ScalingCurve, path: Path) -> None:
    """Draw `curve` as a picture, in the format of the path's ending. Raises BadInputError and PlacerError."""
    check_picture(path, "--plot")
    save_picture(path, (7.5, 4.5), lambda figure: _fill(figure.subplots(), curve), dpi=130)


def draw_sgd(curve: SgdCurve, path: Path) -> None:
    """Draw the parts of an iteration, and the speed-up. Raises BadInputError and PlacerError."""
    check_picture(path, "--plot")
    save_picture(path, (10.5, 4.2), lambda figure: _fill_sgd(figure, curve), dpi=130)


def _fill(ax: Any, curve: ScalingCurve) -> None:
    if any(isinstance(at, str) for at in curve.at):
        below = [v - low for v, low in zip(curve.value, curve.low, strict=True)]
        above = [high - v for v, high in zip(curve.value, curve.high, strict=True)]
        ax.errorbar(curve.at, curve.value, (below, above), fmt="o", color=LINE, capsize=4)
    else:
        ax.fill_between(curve.at, curve.low, curve.high, color=LINE, alpha=0.2, linewidth=0, label="90 % of runs")
        ax.plot(curve.at, curve.value, color=LINE, marker="o" if len(curve.at) <= 33 else "", markersize=3.5)
        _show_range(ax, curve)
    ax.set(xlabel=curve.x_name, ylabel=curve.y_name)
    ax.set_ylim(bottom=0)
    ax.set_title(curve.title, loc="left", fontsize=8)
    plain_axes(ax)


def _show_range(ax: Any, curve: ScalingCurve) -> None:
    """Shade the values that are outside the range of the runs."""
    if curve.measured is None:
        return
    low, high = min(map(float, curve.at)), max(map(float, curve.at))
    beyond = [(low, min(curve.measured[0], high)), (max(curve.measured[1], low), high)]
    shown = [(a, b) for a, b in beyond if b > a]
    for i, (a, b) in enumerate(shown):
        label = "not measured there" if i == 0 else None
        ax.axvspan(a, b, facecolor="#eeeeee", edgecolor="#bbbbbb", linewidth=0.6, zorder=0, label=label)
    ax.set_xlim(low, high)
    ax.legend(frameon=False, fontsize=8)


def _fill_sgd(figure: Any, curve: SgdCurve) -> None:
    left, right = figure.subplots(1, 2)
    at = [row["devices"] for row in curve.rows]
    computing, exposed = ([row[key] for row in curve.rows] for key in ("compute_s", "exposed_s"))
    rest = [max(row["iteration_s"] - c - e, 0.0) for row, c, e in zip(curve.rows, computing, exposed, strict=True)]
    bottom = [0.0] * len(at)
    places = range(len(at))
    for (name, colour), seconds in zip(PARTS, (computing, exposed, rest), strict=True):
        high = [s * 1e3 for s in seconds]
        if any(h > 1e-9 for h in high):
            left.bar(places, high, bottom=bottom, color=colour, label=name, width=0.8)
        bottom = [b + h for b, h in zip(bottom, high, strict=True)]
    left.set_xticks(places, [str(n) for n in at], fontsize=8)
    left.set(xlabel="devices", ylabel="iteration, ms")
    left.legend(frameon=False, fontsize=8)
    right.plot(at, at, color=GREY, linestyle="--", linewidth=0.9, label="ideal")
    right.plot(at, [row["speedup"] for row in curve.rows], color=LINE, marker="o", markersize=3.5, label="predicted")
    right.set(xlabel="devices", ylabel="speed-up over one device")
    right.set_xlim(left=min(at))
    right.set_ylim(bottom=0)
    right.legend(frameon=False, fontsize=8)
    figure.suptitle(curve.title, fontsize=10)
    for ax in (left, right):
        plain_axes(ax)
