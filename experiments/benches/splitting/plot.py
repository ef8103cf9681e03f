"""The picture of the bench splitting: speed over the best single device with whole ops, and with divided ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.benches.bench import Facts
from experiments.report.plots.picture import COLOURS, light_grid, name_rows, save_picture

PICTURE = Path("docs/splitting.png")
WIDTH_IN, ROW_IN, LEAST_IN = 8.0, 0.5, 2.8
BEFORE, AFTER, FAR = "#b8cce4", COLOURS[0], 4.0  # bounds beyond FAR are not drawn


def draw(facts: Facts, path: Path) -> None:
    """Draw the bench's facts. Raises PlacerError if the file cannot be written."""
    rows = measured_rows(facts)
    save_picture(path, (WIDTH_IN, max(LEAST_IN, ROW_IN * len(rows) + 1.4)), lambda figure: fill(figure, facts), dpi=120)


def fill(figure: Any, facts: Facts) -> None:
    """Two bars for each network, without and with dividing, and marks for the speed that the bounds allow."""
    ax, rows = figure.subplots(), measured_rows(facts)
    for offset, key, bound, colour, label in (
        (-0.2, "off_to_best_single", "bound_s_off", BEFORE, "whole ops"),
        (0.2, "ratio_to_best_single", "bound_s_divided", AFTER, "where ops may be divided"),
    ):
        at = [i + offset for i in range(len(rows))]
        ratios = [row[key] for row in rows.values()]
        ax.barh(at, ratios, height=0.38, color=colour, zorder=2, label=label)
        for y, ratio in zip(at, ratios, strict=True):
            ax.text(0.02, y, f"{ratio:.2f}", va="center", fontsize=8, color="#222222" if offset < 0 else "white")
        rooms = [(row["best_single_s"] / row[bound], y) for row, y in zip(rows.values(), at, strict=True) if row[bound]]
        marks = [mark for mark in rooms if mark[0] <= FAR]
        if marks:
            told = "bound, by prediction" if offset < 0 else None
            ax.scatter(*zip(*marks, strict=True), marker="|", s=90, color="#222222", zorder=3, label=told)
    ax.axvline(1.0, color="#999999", linewidth=1.0, zorder=1)
    name_rows(ax, list(rows))
    ax.set_xlim(left=0)
    ax.set_xlabel("best single device / delivered")
    if rows:
        ax.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3)
    light_grid(ax, f"speed on {facts['workers']} workers", axis="x")


def measured_rows(facts: Facts) -> dict[str, Facts]:
    """The rows of the networks that were measured."""
    return {name: row for name, row in facts["by_model"].items() if "failed" not in row}
