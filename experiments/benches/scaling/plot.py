"""The picture of the bench scaling: predictions while unseen, all errors, larger networks, and synchronous SGD."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benches.bench import Facts
from experiments.report.plots.picture import COLOURS, MARKERS, diagonal, light_grid, name_rows, save_picture

PICTURE = Path("docs/scaling.png")
GENERIC = "generic"
PANEL_IN = (4.8, 4.6)
OURS, THEIRS = "#4c78a8", "#f58518"
RATIOS = (0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)
MS = (2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
GFLOPS = tuple(factor * 10.0**power for power in range(-3, 6) for factor in (1, 2, 5))


def draw(facts: Facts, path: Path) -> None:
    """Draw the bench's facts. Raises PlacerError if the file cannot be written."""
    size_in = (PANEL_IN[0] * (3 + _has_sgd(facts)), PANEL_IN[1])
    save_picture(path, size_in, lambda figure: fill(figure, facts), dpi=120)


def fill(figure: Any, facts: Facts) -> None:
    """Left to right: steps predicted by the generic model, the errors of all models, the larger networks, and, if they
    were measured, iterations of synchronous SGD.
    """
    widths = [1.0, 1.15, 1.15, *([1.0] if _has_sgd(facts) else [])]
    axes = figure.subplots(1, len(widths), width_ratios=widths)
    _draw_predictions(axes[0], facts["by_kind"])
    _draw_errors(axes[1], [row for row in facts["table"] if row["extrapolation"] is not None])
    _draw_larger(axes[2], facts["by_kind"], facts["best_blackbox"])
    if _has_sgd(facts):
        _draw_sgd(axes[3], facts["sgd"]["rows"])
    for ax in axes:
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)


def _draw_predictions(ax: Any, by_kind: dict[str, Facts]) -> None:
    """Milliseconds of every run, predicted by the generic model while unseen."""
    both = {
        kind: [1e3 * np.array(row["points"][key]) for key in ("measured_s", "predicted_s")]
        for kind, row in by_kind.items()
    }
    diagonal(ax, np.concatenate([ms for pair in both.values() for ms in pair]), 0.9, 1.1)
    for i, (kind, pair) in enumerate(both.items()):
        ax.scatter(*pair, s=14, color=COLOURS[i], marker=MARKERS[i], alpha=0.7, linewidth=0, label=kind)
    ax.set(xscale="log", yscale="log", xlabel="measured, ms", ylabel="predicted while unseen, ms")
    _set_ticks(ax, MS, MS)
    ax.legend(fontsize=9, frameon=False, loc="upper left")
    light_grid(ax, "steps, by the generic model")


def _has_sgd(facts: Facts) -> bool:
    return bool(facts.get("sgd", {}).get("rows"))


def _draw_sgd(ax: Any, rows: list[Facts]) -> None:
    """Milliseconds of every iteration, predicted by the formula of synchronous SGD; a marker per manner of input."""
    both = 1e3 * np.array([[row["measured_s"], row["predicted_s"]] for row in rows])
    diagonal(ax, both.ravel(), 0.8, 1.25)
    counts, manners = (list(dict.fromkeys(row[key] for row in rows)) for key in ("devices", "input"))
    for row, pair in zip(rows, both, strict=True):
        colour, marker = COLOURS[counts.index(row["devices"])], MARKERS[manners.index(row["input"])]
        ax.scatter(*pair, s=18, color=colour, marker=marker, alpha=0.75, linewidth=0)
    for i, count in enumerate(counts):
        crowd = next(row["workers_per_core"] for row in rows if row["devices"] == count)
        label = f"{count} worker{'s' * (count > 1)}" + (f", {crowd} a core" if crowd > 1 else "")
        ax.scatter([], [], s=18, color=COLOURS[i], label=label)
    for i, manner in enumerate(manners):
        ax.scatter([], [], s=18, color="#777777", marker=MARKERS[i], label=manner)
    ax.set(xscale="log", yscale="log", xlabel="measured, ms", ylabel="predicted by formula, ms")
    _set_ticks(ax, MS, MS)
    ax.legend(fontsize=8, frameon=False, loc="upper left")
    light_grid(ax, "iterations of synchronous SGD")


def _draw_errors(ax: Any, table: list[Facts]) -> None:
    """Two bars for each model. Bars far beyond the median are cut off, because one bad model would dwarf all others."""
    rows = np.arange(len(table))
    most = 2.2 * sorted(max(row["held_out"], row["extrapolation"]) for row in table)[len(table) // 2]
    for offset, key, colour, label in (
        (-0.2, "held_out", "#b8cce4", "held out"),
        (0.2, "extrapolation", OURS, "larger networks"),
    ):
        errors = [row[key] for row in table]
        ax.barh(rows + offset, errors, height=0.38, color=colour, label=label)
        for i, error in enumerate(errors):
            at = min(error, 0.86 * most) + 0.01 * most
            ax.text(at, i + offset, f"{error:.1%}", va="center", fontsize=7, color="#333333")
    name_rows(ax, [row["model"] for row in table], bold=GENERIC, fontsize=9)
    ax.set_xlim(0, most)
    ax.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    ax.legend(fontsize=9, frameon=False, loc="upper right")
    light_grid(ax, "mean absolute error", axis="x")


def _draw_larger(ax: Any, by_kind: dict[str, Facts], rival: str) -> None:
    """Predicted divided by measured seconds of larger networks, by the generic model and the best black box."""
    ax.axhline(1.0, color="#999999", linewidth=0.8, zorder=1)
    for i, row in enumerate(by_kind.values()):
        gflop = np.array(row["beyond"]["operations"]) / 1e9
        for name, colour in ((rival, THEIRS), (GENERIC, OURS)):
            ratios = row["beyond"]["ratio"][name]
            ax.scatter(gflop, ratios, s=16, color=colour, marker=MARKERS[i], alpha=0.75, linewidth=0)
    for colour, name in ((OURS, GENERIC), (THEIRS, rival)):
        ax.scatter([], [], color=colour, s=16, label=name)
    ax.set(xscale="log", yscale="log", xlabel="operations of a step, GFLOP", ylabel="predicted / measured")
    _set_ticks(ax, GFLOPS, RATIOS)
    ax.legend(fontsize=9, frameon=False, loc="lower left")
    light_grid(ax, "larger than any network shown")


def _set_ticks(ax: Any, along_x: Sequence[float], along_y: Sequence[float]) -> None:
    """Set the given ticks that are within the axes, written plainly: a logarithmic axis has few or none by itself."""
    for set_ticks, ticks, ends in ((ax.set_xticks, along_x, ax.get_xlim()), (ax.set_yticks, along_y, ax.get_ylim())):
        inside = [tick for tick in ticks if ends[0] <= tick <= ends[1]]
        set_ticks(inside, [f"{tick:g}" for tick in inside], fontsize=8)
    ax.minorticks_off()
