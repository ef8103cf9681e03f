"""The picture of the bench `spoc`: left-out families predicted by FLOPs alone and by SPOC, and correlations; below, the
predictions on another kind of device, and whether the sentences of `placer spoc` are true.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benches.bench import Facts
from experiments.benches.spoc.advice_page import WHATS
from experiments.benches.spoc.analysis import FLOPS, SPOC
from experiments.report.plots.picture import MARKERS, diagonal, light_grid, name_rows, plain_log, save_picture

PICTURE = Path("docs/spoc.png")
SIZE_IN = (15.0, 5.4)
TWO_ROWS_IN = (15.0, 10.4)
WIDTHS = (1.0, 1.0, 0.8)
RIGHT, WRONG, UNSAID = "#54a24b", "#e45756", "#9d9d9d"


def draw(facts: Facts, path: Path) -> None:
    """Draw the bench's facts. Raises PlacerError if the file cannot be written."""
    size = TWO_ROWS_IN if facts.get("devices") else SIZE_IN
    save_picture(path, size, lambda figure: fill(figure, facts), dpi=110)


def fill(figure: Any, facts: Facts) -> None:
    """Left to right: training steps predicted by FLOPs and by SPOC, in seconds, and every metric's correlation.

    If the facts have other kinds of device, a second row shows steps there, by a fit there and by a fit on the first
    kind, and the gains by which advice was judged.
    """
    if not facts.get("devices"):
        _first_row(figure, figure.subplots(1, 3, width_ratios=WIDTHS), facts)
        return
    above, below = figure.subplots(2, 3, width_ratios=WIDTHS)
    _first_row(figure, above, facts)
    _other_device(below[:2], facts)
    _draw_gains(below[2], facts["advice"])


def _first_row(figure: Any, axes: Sequence[Any], facts: Facts) -> None:
    *left, right = axes
    step = facts["targets"]["step"]
    for ax, name, error in zip(left, (FLOPS, SPOC), (step["flops_error"], step["spoc_error"]), strict=True):
        points = step["points"]
        limits = [s for key in ("measured_s", FLOPS, SPOC) for s in points[key]]
        _draw_predictions(ax, points["family"], points["measured_s"], points[name], limits)
        light_grid(ax, f"{name}: {error:.0%} off on average")
    handles, labels = left[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=10, fontsize=8, frameon=False)
    _draw_correlations(right, *(facts["targets"][target]["correlations"] for target in ("step", "inference")))


def _other_device(axes: Sequence[Any], facts: Facts) -> None:
    """Steps on the second kind of device: by a fit on it, and by a fit on the first."""
    first, second, *_ = facts["devices"]
    own = facts["devices"][second]["step"]
    sent = next(row for row in facts["transfers"] if (row["from"], row["to"], row["target"]) == (first, second, "step"))
    limits = [s for found in (own, sent) for key in ("measured_s", "predicted_s") for s in found["points"][key]]
    for ax, points, title in (
        (axes[0], own["points"], f"SPOC on {second}: {own['spoc']['mean']:.0%} off"),
        (axes[1], sent["points"], f"fit on {first} times {sent['factor']:.2f}: {sent['error']['mean']:.0%} off"),
    ):
        _draw_predictions(ax, points["family"], points["measured_s"], points["predicted_s"], limits)
        ax.set_xlabel(f"measured training step on {second}, s")
        light_grid(ax, title)


def _draw_predictions(
    ax: Any, families: Sequence[str], measured: Sequence[float], predicted: Sequence[float], limits: Sequence[float]
) -> None:
    """A dot per network, in the colour and shape of its family. limits: all seconds that the axes have to hold."""
    from matplotlib import colormaps

    measured_s, predicted_s, family_of = np.array(measured), np.array(predicted), np.array(families)
    diagonal(ax, limits, 0.8, 1.25)
    for i, family in enumerate(dict.fromkeys(families)):
        ax.scatter(
            measured_s[family_of == family], predicted_s[family_of == family], s=15, alpha=0.8, zorder=2,
            color=colormaps["tab20"](i % 20), marker=MARKERS[i % len(MARKERS)], label=family,
        )  # fmt: skip
    plain_log(ax)
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


def _draw_gains(ax: Any, advice: Facts) -> None:
    """A row for each sentence and thing that may help, a dot for each network, and the gain from which it helps."""
    tried = [(sentence, what) for sentence, told in advice["sentences"].items() for what in WHATS if _any(told, what)]
    for row, (sentence, what) in enumerate(tried):
        says, least = advice["sentences"][sentence][what]["says"], advice["helps"][what]
        gains = [network[what] for network in advice["networks"] if network["limit"] == sentence]
        colours = [UNSAID if says is None else RIGHT if (gain >= least) == says else WRONG for gain in gains]
        ax.scatter(gains, [row] * len(gains), c=colours, s=22, alpha=0.85, zorder=2)
        ax.plot([least, least], [row - 0.35, row + 0.35], color="#333333", lw=1.2, zorder=1)
    name_rows(ax, [f"{sentence}: {WHATS[what]}" for sentence, what in tried])
    for colour, label in ((RIGHT, "as said"), (WRONG, "not as said"), (UNSAID, "nothing said")):
        ax.scatter([], [], c=colour, s=22, label=label)
    light_grid(ax, "Gains by what placer spoc advises", axis="x")
    ax.legend(fontsize=9, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=3)


def _any(told: Facts, what: str) -> bool:
    return told[what]["median"] is not None
