"""The picture of the bench scaling: predictions while unseen, every model's errors, and larger networks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.benches.bench import Facts
from experiments.report.picture import COLOURS, MARKERS, save_picture

GENERIC = "generic"
WIDTH_IN, HEIGHT_IN = 14.5, 4.6
OURS, THEIRS = "#4c78a8", "#f58518"


@dataclass(frozen=True)
class Cloud:
    """One kind of network: measured and predicted ms of runs while unseen; and, for the larger runs, operations in
    GFLOP and predicted / measured, by the generic model and by the best black box.
    """

    kind: str
    measured: tuple[float, ...]
    predicted: tuple[float, ...]
    gflop: tuple[float, ...]
    ours: tuple[float, ...]
    theirs: tuple[float, ...]


@dataclass(frozen=True)
class Picture:
    """What is drawn. bars: (model, error held out, error on larger networks), the smallest first."""

    clouds: tuple[Cloud, ...]
    bars: tuple[tuple[str, float, float], ...]
    rival: str


def picture_of(facts: Facts) -> Picture:
    """The picture of a bench's facts."""
    rival = facts["best_blackbox"]
    clouds = []
    for kind, row in facts["by_kind"].items():
        points, beyond = row["points"], row["beyond"]
        clouds.append(
            Cloud(
                kind,
                tuple(s * 1e3 for s in points["measured_s"]),
                tuple(s * 1e3 for s in points["predicted_s"]),
                tuple(count / 1e9 for count in beyond["operations"]),
                tuple(beyond["ratio"][GENERIC]),
                tuple(beyond["ratio"][rival]),
            )
        )
    judged = [row for row in facts["table"] if row["extrapolation"] is not None]
    bars = [(row["model"], row["held_out"], row["extrapolation"]) for row in judged]
    return Picture(tuple(clouds), tuple(bars), rival)


def draw(picture: Picture, path: Path) -> None:
    """`picture` as a PNG. Raises PlacerError where it cannot be written."""
    size_in = (WIDTH_IN, HEIGHT_IN)
    save_picture(path, size_in, lambda figure: _fill(figure, picture), dpi=120)


def _fill(figure: Any, picture: Picture) -> None:
    left, middle, right = figure.subplots(1, 3, width_ratios=[1.0, 1.15, 1.15])
    _draw_clouds(left, picture)
    _draw_bars(middle, picture)
    _draw_larger(right, picture)
    for ax in (left, middle, right):
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
        ax.set_axisbelow(True)


def _draw_clouds(ax: Any, picture: Picture) -> None:
    every = [value for cloud in picture.clouds for value in (*cloud.measured, *cloud.predicted)]
    ends = 0.9 * min(every), 1.1 * max(every)
    ax.plot(ends, ends, color="#999999", linewidth=0.8, zorder=1)
    for i, cloud in enumerate(picture.clouds):
        ax.scatter(cloud.measured, cloud.predicted, s=14, color=COLOURS[i], marker=MARKERS[i], alpha=0.7,
                   linewidth=0, label=cloud.kind)  # fmt: skip
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="measured, ms", ylabel="predicted while unseen, ms")
    ax.set_aspect("equal")
    ax.set_title("steps, by the generic model", fontsize=11)
    ax.legend(fontsize=9, frameon=False, loc="upper left")
    ax.grid(color="#eeeeee")


def _draw_bars(ax: Any, picture: Picture) -> None:
    rows = range(len(picture.bars))
    most = 2.2 * sorted(max(held_out, larger) for _, held_out, larger in picture.bars)[len(picture.bars) // 2]
    held_out, larger = ([bar[1] for bar in picture.bars], [bar[2] for bar in picture.bars])
    for offset, values, colour, label in (
        (-0.2, held_out, "#b8cce4", "held out"),
        (0.2, larger, OURS, "larger networks"),
    ):
        ax.barh([row + offset for row in rows], values, height=0.38, color=colour, label=label)
        for row, value in zip(rows, values, strict=True):
            at = min(value, 0.86 * most)
            ax.text(at + 0.01 * most, row + offset, f"{value:.1%}", va="center", fontsize=7, color="#333333")
    ax.set_yticks(rows, [bar[0] for bar in picture.bars], fontsize=9)
    for label, bar in zip(ax.get_yticklabels(), picture.bars, strict=True):
        label.set_fontweight("bold" if bar[0] == GENERIC else "normal")
    ax.invert_yaxis()
    ax.set_xlim(0, most)
    ax.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    ax.set_title("mean absolute error", fontsize=11)
    ax.legend(fontsize=9, frameon=False, loc="upper right")
    ax.grid(axis="x", color="#eeeeee")


def _draw_larger(ax: Any, picture: Picture) -> None:
    ax.axhline(1.0, color="#999999", linewidth=0.8, zorder=1)
    for i, cloud in enumerate(picture.clouds):
        for ratios, colour in ((cloud.theirs, THEIRS), (cloud.ours, OURS)):
            ax.scatter(cloud.gflop, ratios, s=16, color=colour, marker=MARKERS[i], alpha=0.75, linewidth=0)
    for colour, name in ((OURS, GENERIC), (THEIRS, picture.rival)):
        ax.scatter([], [], color=colour, s=16, label=name)
    ax.set(xscale="log", yscale="log", xlabel="operations of a step, GFLOP", ylabel="predicted / measured")
    ticks = [0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0]
    low, high = ax.get_ylim()
    ax.set_yticks([t for t in ticks if low <= t <= high], [f"{t:g}" for t in ticks if low <= t <= high], fontsize=8)
    sizes = [factor * 10.0**power for power in range(-3, 6) for factor in (1, 2, 5)]
    low, high = ax.get_xlim()
    ax.set_xticks([s for s in sizes if low <= s <= high], [f"{s:g}" for s in sizes if low <= s <= high])
    ax.minorticks_off()
    ax.set_title("larger than any network shown", fontsize=11)
    ax.legend(fontsize=9, frameon=False, loc="lower left")
    ax.grid(color="#eeeeee")
