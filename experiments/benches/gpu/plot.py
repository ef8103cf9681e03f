"""The picture of the bench `gpu`: ratios to TensorFlow's default, network by network, and predictions by the clock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.benches.bench import Facts
from experiments.report.picture import COLOURS, save_picture

WIDTH_IN, ROW_IN, LEAST_IN = 15.0, 0.3, 4.2
FAR = 4.0  # bounds beyond are not drawn


@dataclass(frozen=True)
class Bars:
    """Ratios of TensorFlow's default to what was delivered, one bar per network. bounds, published: None = no mark."""

    title: str
    names: tuple[str, ...]
    ratios: tuple[float, ...]
    bounds: tuple[float | None, ...]
    published: tuple[float | None, ...]


@dataclass(frozen=True)
class Picture:
    """What is drawn, left to right. pairs: (predicted, measured) seconds by the devices they were measured on."""

    bars: tuple[Bars, ...]
    pairs: dict[str, tuple[tuple[float, float], ...]]
    title: str


def picture_of(facts: Facts) -> Picture:
    """The picture of a bench's facts."""
    parts = {"CPU + GPU": facts["models"], **facts["splits"]}
    good = {
        part: {name: row for name, row in rows.items() if row.get("ratio_to_tf_default")}
        for part, rows in parts.items()
    }
    splits = {
        f"{name}, {part}": row for part, rows in good.items() if part != "CPU + GPU" for name, row in rows.items()
    }
    error = facts["unseen_mape"]
    off = "nothing measured" if error is None else f"{error:.0%} off on average"
    return Picture(
        bars=(
            _bars("CPU + GPU", good["CPU + GPU"], facts["published"]),
            _bars("one card as several devices", splits, {}),
        ),
        pairs={
            part: tuple((p, m) for row in rows.values() for p, m in row["unseen"])
            for part, rows in good.items()
            if rows
        },
        title=f"steps predicted unseen: {off}",
    )


def _bars(title: str, rows: dict[str, Facts], published: dict[str, float]) -> Bars:
    return Bars(
        title,
        tuple(rows),
        tuple(row["ratio_to_tf_default"] for row in rows.values()),
        tuple(row["bound_ratio"] for row in rows.values()),
        tuple(published.get(name) for name in rows),
    )


def draw(picture: Picture, path: Path) -> None:
    """`picture` as a PNG. Raises PlacerError where it cannot be written."""
    rows = max(len(bars.names) for bars in picture.bars)
    size_in = (WIDTH_IN, max(LEAST_IN, ROW_IN * rows + 1.6))
    save_picture(path, size_in, lambda figure: _fill(figure, picture), dpi=110)


def _fill(figure: Any, picture: Picture) -> None:
    *left, right = figure.subplots(1, len(picture.bars) + 1, width_ratios=[1.0] * len(picture.bars) + [0.9])
    for ax, bars in zip(left, picture.bars, strict=True):
        _draw_bars(ax, bars)
    _draw_pairs(right, picture)


def _draw_bars(ax: Any, bars: Bars) -> None:
    rows = range(len(bars.names))
    ax.barh(rows, bars.ratios, height=0.62, color=COLOURS[0], zorder=2, label="delivered")
    _marks(ax, bars.bounds, "|", "#222222", "bound, by prediction")
    _marks(ax, bars.published, "D", COLOURS[1], "HTF-MPR, other hardware")
    ax.axvline(1.0, color="#999999", linewidth=1.0, zorder=1)
    for row, ratio in zip(rows, bars.ratios, strict=True):
        ax.annotate(f"{ratio:.2f}", (0.02, row), va="center", fontsize=8, color="white", zorder=5)
    ax.set_yticks(rows, bars.names)
    ax.invert_yaxis()
    ax.set_xlim(left=0)
    ax.set_xlabel("TensorFlow's default / delivered")
    ax.set_title(bars.title, fontsize=11)
    ax.grid(axis="x", color="#eeeeee")
    ax.set_axisbelow(True)
    if bars.names:
        ax.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3)


def _marks(ax: Any, values: tuple[float | None, ...], marker: str, colour: str, label: str) -> None:
    there = [(value, row) for row, value in enumerate(values) if value is not None and value <= FAR]
    if there:
        x, y = zip(*there, strict=True)
        ax.scatter(x, y, marker=marker, s=130 if marker == "|" else 28, color=colour, zorder=4, label=label)


def _draw_pairs(ax: Any, picture: Picture) -> None:
    every = [s for pairs in picture.pairs.values() for pair in pairs for s in pair]
    ax.set_title(picture.title, fontsize=11)
    if not every:
        return
    limits = 0.8 * min(every), 1.25 * max(every)
    ax.plot(limits, limits, color="#999999", linewidth=0.8, zorder=1)
    for i, (part, pairs) in enumerate(picture.pairs.items()):
        if pairs:
            predicted, measured = zip(*pairs, strict=True)
            ax.scatter(measured, predicted, s=16, alpha=0.8, color=COLOURS[i % len(COLOURS)], label=part)
    ax.set(xscale="log", yscale="log", xlim=limits, ylim=limits, aspect="equal")
    ax.set(xlabel="measured step, s", ylabel="predicted when asked for, s")
    ax.legend(fontsize=8, frameon=False, loc="upper left")
    ax.grid(color="#eeeeee")
    ax.set_axisbelow(True)
