"""The picture of the bench `spoc`: left-out families predicted by FLOPs alone and by SPOC, and correlations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.benches.bench import Facts
from experiments.benches.spoc.analysis import FLOPS, SPOC
from experiments.report.plots.picture import MARKERS, diagonal, light_grid, name_rows, save_picture

PICTURE = Path("docs/spoc.png")
SIZE_IN = (15.0, 5.4)


def draw(facts: Facts, path: Path) -> None:
    """Draw the bench's facts. Raises PlacerError where the file cannot be written."""
    save_picture(path, SIZE_IN, lambda figure: fill(figure, facts), dpi=110)


def fill(figure: Any, facts: Facts) -> None:
    """Left to right: training steps predicted by FLOPs and by SPOC, in seconds, and every metric's correlation."""
    *left, right = figure.subplots(1, 3, width_ratios=[1.0, 1.0, 0.8])
    step = facts["targets"]["step"]
    for ax, name, error in zip(left, (FLOPS, SPOC), (step["flops_error"], step["spoc_error"]), strict=True):
        _draw_predictions(ax, step["points"], name)
        light_grid(ax, f"{name}: {error:.0%} off on average")
    handles, labels = left[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=10, fontsize=8, frameon=False)
    _draw_correlations(right, *(facts["targets"][target]["correlations"] for target in ("step", "inference")))


def _draw_predictions(ax: Any, points: Facts, name: str) -> None:
    """A dot per network, in the colour and shape of its family."""
    from matplotlib import colormaps

    measured_s, predicted_s, family_of = (np.array(points[key]) for key in ("measured_s", name, "family"))
    diagonal(ax, (s for key in ("measured_s", FLOPS, SPOC) for s in points[key]), 0.8, 1.25)
    for i, family in enumerate(dict.fromkeys(points["family"])):
        ax.scatter(
            measured_s[family_of == family], predicted_s[family_of == family], s=15, alpha=0.8, zorder=2,
            color=colormaps["tab20"](i % 20), marker=MARKERS[i % len(MARKERS)], label=family,
        )  # fmt: skip
    ax.set(xscale="log", yscale="log")
    ax.set(xlabel="measured training step, s", ylabel="predicted, its family left out, s")


def _draw_correlations(ax: Any, step: Facts, inference: Facts) -> None:
    rows = np.arange(len(step))
    lowest = 0.0
    for offset, found, colour, label in (
        (-0.2, step, "#4c78a8", "training step"),
        (0.2, inference, "#f58518", "inference"),
    ):
        spearman = [found[name]["spearman"] for name in step]
        lowest = min(lowest, *spearman)
        ax.barh(rows + offset, spearman, height=0.38, color=colour, label=label)
    name_rows(ax, list(step))
    ax.set_xlim(lowest, 1)
    light_grid(ax, "Spearman's correlation with measured time", axis="x")
    ax.legend(fontsize=9, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=2)
