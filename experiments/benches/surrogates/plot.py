"""The picture of the bench surrogates: the errors of all regressors on all networks, and the winner's predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.benches.bench import Facts
from experiments.report.plots.picture import COLOURS, MARKERS, diagonal, light_grid, name_rows, save_picture

PICTURE = Path("docs/surrogates.png")
WIDTH_IN, ROW_IN = 13.0, 0.32


def draw(facts: Facts, path: Path) -> None:
    """Draw the bench's facts. Raises PlacerError if the file cannot be written."""
    size_in = (WIDTH_IN, max(3.6, ROW_IN * len(facts["table"]) + 1.5))
    save_picture(path, size_in, lambda figure: fill(figure, facts), dpi=120)


def fill(figure: Any, facts: Facts) -> None:
    """Left to right: two errors of every regressor, the least mean error on top, and the winner's predictions."""
    errors, regrets, predictions = figure.subplots(1, 3, width_ratios=[1.0, 1.0, 1.2])
    _draw_errors(errors, facts, "mape", "mean absolute error")
    _draw_errors(regrets, facts, "topk_regret", f"top-{facts['top']} regret")
    regrets.set_yticklabels([])
    _draw_predictions(predictions, facts)


def _draw_errors(ax: Any, facts: Facts, key: str, title: str) -> None:
    """A bar for a regressor's mean over all networks, a dot for each network."""
    names = [row["model"] for row in facts["table"]]
    ax.barh(names, [row[key] for row in facts["table"]], height=0.7, color="#e3e3e3", zorder=1)
    for i, network in enumerate(facts["by_model"].values()):
        of = {row["model"]: row[key] for row in network["table"]}
        ax.scatter([of[name] for name in names], range(len(names)), s=22, zorder=3, **_style(i))
    name_rows(ax, names, bold=facts["winner"])
    ax.set_xlim(left=0)
    ax.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}" if share >= 0.1 or not share else f"{share:.1%}")
    light_grid(ax, title, axis="x")


def _draw_predictions(ax: Any, facts: Facts) -> None:
    """Steps of each network, predicted while unseen, and measured; all divided by its best single device's step."""
    steps = {
        name: [[s / row["single_s"] for s in row["points"][key]] for key in ("measured_s", "winner_s")]
        for name, row in facts["by_model"].items()
    }
    diagonal(ax, (s for both in steps.values() for seconds in both for s in seconds), 0.95, 1.05)
    for i, (name, (measured, predicted)) in enumerate(steps.items()):
        ax.scatter(measured, predicted, s=16, alpha=0.75, label=name, **_style(i))
    ax.set(xlabel="measured", ylabel="predicted while unseen")
    ax.legend(fontsize=9, frameon=False, loc="upper left")
    light_grid(ax, f"steps over the best single device,\nby {facts['winner']}")


def _style(i: int) -> dict[str, str]:
    return {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
