"""The picture of the bench `gpu`: ratios to TensorFlow's default by network, and predicted against measured steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.benches.bench import Facts
from experiments.benches.gpu.figures import is_on_one, with_ratio
from experiments.report.plots.picture import COLOURS, diagonal, light_grid, name_rows, plain_log, save_picture

PICTURE = Path("docs/gpu.png")
WIDTH_IN, ROW_IN, LEAST_IN = 15.0, 0.3, 4.2
LIGHT = "#a9c1dc"  # the first colour, paler: no placement
FAR = 4.0  # marks at ratios beyond this are not drawn


def draw(facts: Facts, path: Path) -> None:
    """Draw the bench's facts. Raises PlacerError if the file cannot be written."""
    rows = max(len(with_ratio(facts["models"])), sum(len(with_ratio(rows)) for rows in facts["splits"].values()))
    size_in = (WIDTH_IN, max(LEAST_IN, ROW_IN * rows + 1.6))
    save_picture(path, size_in, lambda figure: fill(figure, facts), dpi=110)


def fill(figure: Any, facts: Facts) -> None:
    """Left to right: ratios on CPU + GPU, ratios on one card as several devices if there are any, and step times
    predicted before they were measured.
    """
    splits = {
        f"{name}, {part}": row for part, rows in facts["splits"].items() for name, row in with_ratio(rows).items()
    }
    parts: list[tuple[str, dict[str, Facts], dict[str, float]]] = [
        ("CPU + GPU", with_ratio(facts["models"]), facts["published"])
    ]
    if splits:
        parts.append(("one card as several devices", splits, {}))
    *axes, predictions = figure.subplots(1, len(parts) + 1, width_ratios=[*(1.0 for _ in parts), 0.9])
    for ax, (title, rows, published) in zip(axes, parts, strict=True):
        _draw_ratios(ax, rows, published)
        light_grid(ax, title, axis="x")
    error = facts["unseen_mape"]
    off = "nothing measured" if error is None else f"{error:.0%} off on average"
    if error is not None:
        _draw_predictions(predictions, {"CPU + GPU": facts["models"], **facts["splits"]})
    light_grid(predictions, f"steps predicted unseen: {off}")


def _draw_ratios(ax: Any, rows: dict[str, Facts], published: dict[str, float]) -> None:
    """A bar per network, and marks for the highest ratio that can be predicted of a mapping and for HTF-MPR's ratio."""
    ratios = [row["ratio_to_tf_default"] for row in rows.values()]
    for on_one, colour, label in ((False, COLOURS[0], "delivered"), (True, LIGHT, "delivered, on one device")):
        those = [i for i, row in enumerate(rows.values()) if is_on_one(row) == on_one]
        if those:
            ax.barh(those, [ratios[i] for i in those], height=0.62, color=colour, zorder=2, label=label)
    bounds = [row["bound_ratio"] for row in rows.values()]
    _draw_marks(ax, bounds, marker="|", s=130, color="#222222", label="bound, by prediction")
    _draw_marks(ax, map(published.get, rows), marker="D", s=28, color=COLOURS[1], label="HTF-MPR, other hardware")
    ax.axvline(1.0, color="#999999", linewidth=1.0, zorder=1)
    for i, ratio in enumerate(ratios):
        ax.annotate(f"{ratio:.2f}", (0.02, i), va="center", fontsize=8, color="black", zorder=5)
    name_rows(ax, list(rows))
    ax.set_xlim(left=0)
    ax.set_xlabel("TensorFlow's default / delivered")
    if rows:
        ax.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=4)


def _draw_marks(ax: Any, values: Any, **style: Any) -> None:
    marks = [(value, i) for i, value in enumerate(values) if value is not None and value <= FAR]
    if marks:
        ax.scatter(*zip(*marks, strict=True), zorder=4, **style)


def _draw_predictions(ax: Any, parts: dict[str, dict[str, Facts]]) -> None:
    """Seconds predicted when mappings were asked for, against measured seconds, coloured by the devices."""
    pairs = {
        part: [pair for row in with_ratio(rows).values() for pair in row["unseen"]] for part, rows in parts.items()
    }
    diagonal(ax, (s for some in pairs.values() for pair in some for s in pair), 0.8, 1.25)
    for i, (part, some) in enumerate(pairs.items()):
        if some:
            predicted_s, measured_s = zip(*some, strict=True)
            ax.scatter(measured_s, predicted_s, s=16, alpha=0.8, color=COLOURS[i % len(COLOURS)], label=part)
    plain_log(ax)
    ax.set(xlabel="measured step, s", ylabel="predicted when asked for, s")
    ax.legend(fontsize=8, frameon=False, loc="upper left")
