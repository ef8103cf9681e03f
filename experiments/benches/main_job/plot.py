"""The picture of the bench main-job: what was delivered against the best single device and against TensorFlow alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.benches.bench import Facts
from experiments.report.plots.picture import COLOURS, light_grid, name_rows, save_picture

PICTURE = Path("docs/main-job.png")
WIDTH_IN, ROW_IN, LEAST_IN = 8.0, 0.36, 2.6


def draw(facts: Facts, path: Path) -> None:
    """Draw the bench's facts. Raises PlacerError if the file cannot be written."""
    rows = {name: row for name, row in facts["models"].items() if "failed" not in row}
    size = (WIDTH_IN, max(LEAST_IN, ROW_IN * len(rows) + 1.3))
    save_picture(path, size, lambda figure: _fill(figure, rows, facts["workers"]), dpi=120)


def _fill(figure: Any, rows: dict[str, Facts], workers: int) -> None:
    """A bar for each network, and marks for its seeds and for TensorFlow alone."""
    ax = figure.subplots()
    places = range(len(rows))
    ratios = [row["ratio_to_best_single"] for row in rows.values()]
    ax.barh(places, ratios, height=0.62, color="#b8cce4", zorder=2, label="speed of the delivered mapping")
    for y, ratio in zip(places, ratios, strict=True):
        ax.text(0.02, y, f"{ratio:.2f}", va="center", fontsize=8, color="#222222")
    seeds = [(ratio, y) for y, row in enumerate(rows.values()) for ratio in row.get("by_seed", {}).values() if ratio]
    if seeds:
        ax.scatter(*zip(*seeds, strict=True), marker="|", s=120, color=COLOURS[0], zorder=3, label="each seed")
    alone = [(row["ratio_to_best_single"] / row["ratio_to_untouched"], y) for y, row in enumerate(rows.values())]
    edge = workers + 0.5
    if alone:
        shown = [(min(ratio, edge - 0.05), y) for ratio, y in alone]
        told = "TensorFlow alone, all cores"
        ax.scatter(*zip(*shown, strict=True), marker="D", s=26, color=COLOURS[3], zorder=4, label=told)
    for ratio, y in alone:
        if ratio > edge - 0.05:
            ax.text(edge - 0.1, y, f"{ratio:.1f}", va="center", ha="right", fontsize=8, color=COLOURS[3])
    ax.axvline(1.0, color="#999999", linewidth=1.0, zorder=1)
    name_rows(ax, list(rows))
    ax.set_xlim(0, edge)
    ax.set_xlabel("times as fast as the best single device; further right is faster")
    if rows:
        ax.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)
    light_grid(ax, f"The main job on {workers} one-core workers", axis="x")
