"""The picture of the bench operators: errors of every family of ops, and steps of networks that were left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.benches.bench import Facts
from experiments.benches.operators.left_out_page import measured_rows
from experiments.report.plots.picture import COLOURS, MARKERS, diagonal, light_grid, name_rows, plain_log, save_picture

PICTURE = Path("docs/operators.png")
SIZE_IN = (13.0, 4.6)
SHAPES, NETWORKS, BY_TIME = "mape_unseen_shapes", "mape_unseen_networks", "mape_time_weighted"


def draw(facts: Facts, path: Path) -> None:
    """Draw the bench's facts. Raises PlacerError if the file cannot be written."""
    save_picture(path, SIZE_IN, lambda figure: fill(figure, facts), dpi=120)


def fill(figure: Any, facts: Facts) -> None:
    """Left: the errors of each family, the least on top. Right: the steps of networks left out, if there are any."""
    rows = measured_rows(facts)
    errors, *steps = figure.subplots(1, 2 if rows else 1, squeeze=False)[0]
    _draw_errors(errors, facts)
    if rows:
        _draw_steps(steps[0], rows)


def _draw_errors(ax: Any, facts: Facts) -> None:
    families = sorted((row for row in facts["families"] if row[SHAPES] is not None), key=lambda row: row[SHAPES])
    at = range(len(families))
    ax.barh(at, [row[SHAPES] for row in families], height=0.7, color="#d9d9d9", zorder=1, label="unseen shapes")
    for key, label, i in ((NETWORKS, "unseen networks", 0), (BY_TIME, "unseen shapes, weighted by time", 1)):
        known = [(row[key], y) for y, row in zip(at, families, strict=True) if row[key] is not None]
        if known:
            ax.scatter(*zip(*known, strict=True), s=26, zorder=3, color=COLOURS[i], marker=MARKERS[i], label=label)
    name_rows(ax, [f"{row['family']} ({row['rows']})" for row in families])
    ax.set_xlim(left=0)
    ax.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    ax.legend(fontsize=9, frameon=False)
    light_grid(ax, "mean absolute error by family of ops (rows fitted)", axis="x")


def _draw_steps(ax: Any, rows: dict[str, Facts]) -> None:
    """Steps on one worker, predicted in two ways, against the measured ones."""
    ways = (("predicted_s", "from the times of the other networks", 0), ("profiled_s", "from a profile of its own", 1))
    keys = ("step_s", *(key for key, _, _ in ways))
    diagonal(ax, (1e3 * row[key] for row in rows.values() for key in keys), 0.8, 1.6)
    plain_log(ax)
    for key, label, i in ways:
        found = [(1e3 * row["step_s"], 1e3 * row[key]) for row in rows.values()]
        ax.scatter(*zip(*found, strict=True), s=32, zorder=3, color=COLOURS[i], marker=MARKERS[i], label=label)
    for name, row in rows.items():
        ax.annotate(
            name,
            (1e3 * row["step_s"], 1e3 * row["predicted_s"]),
            xytext=(6, -10),
            textcoords="offset points",
            fontsize=8,
        )
    ax.set(xlabel="measured, ms", ylabel="predicted, ms")
    ax.legend(fontsize=9, frameon=False, loc="upper left")
    light_grid(ax, "steps of networks left out")
