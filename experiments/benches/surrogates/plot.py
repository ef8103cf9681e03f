"""The picture of the bench surrogates: what every regressor errs on every network, and the winner's predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.benches.bench import Facts
from experiments.report.picture import COLOURS, MARKERS, save_picture

WIDTH_IN, ROW_IN = 13.0, 0.32


@dataclass(frozen=True)
class Dots:
    """One error of every regressor: a dot per network, a bar for the mean of all. values: [networks][regressors]."""

    title: str
    values: tuple[tuple[float, ...], ...]
    means: tuple[float, ...]


@dataclass(frozen=True)
class Cloud:
    """Step times of one network, predicted while unseen, and measured; all over its best single device."""

    measured: tuple[float, ...]
    predicted: tuple[float, ...]


@dataclass(frozen=True)
class Picture:
    """What is drawn, top to bottom. regressors: the smallest error first, `winner` among them."""

    networks: tuple[str, ...]
    regressors: tuple[str, ...]
    winner: str
    dots: tuple[Dots, ...]
    clouds: tuple[Cloud, ...]


def picture_of(facts: Facts) -> Picture:
    """The picture of a bench's facts."""
    regressors = tuple(row["model"] for row in facts["table"])
    panels = (("mape", "mean absolute error"), ("topk_regret", f"top-{facts['top']} regret"))
    return Picture(
        networks=tuple(facts["by_model"]),
        regressors=regressors,
        winner=facts["winner"],
        dots=tuple(_dots(facts, key, title, regressors) for key, title in panels),
        clouds=tuple(
            Cloud(*(tuple(s / row["single_s"] for s in row["points"][key]) for key in ("measured_s", "winner_s")))
            for row in facts["by_model"].values()
        ),
    )


def _dots(facts: Facts, key: str, title: str, regressors: Sequence[str]) -> Dots:
    def ordered(rows: Sequence[Facts]) -> tuple[float, ...]:
        of = {row["model"]: row[key] for row in rows}
        return tuple(of[name] for name in regressors)

    values = tuple(ordered(row["table"]) for row in facts["by_model"].values())
    return Dots(title, values, ordered(facts["table"]))


def draw(picture: Picture, path: Path) -> None:
    """`picture` as a PNG. Raises PlacerError where it cannot be written."""
    size_in = (WIDTH_IN, max(3.6, ROW_IN * len(picture.regressors) + 1.5))
    save_picture(path, size_in, lambda figure: _fill(figure, picture), dpi=120)


def _fill(figure: Any, picture: Picture) -> None:
    *left, right = figure.subplots(1, len(picture.dots) + 1, width_ratios=[1.0] * len(picture.dots) + [1.2])
    for ax, dots in zip(left, picture.dots, strict=True):
        _draw_dots(ax, dots, picture)
    for ax in left[1:]:
        ax.set_yticklabels([])
    _draw_clouds(right, picture)


def _draw_dots(ax: Any, dots: Dots, picture: Picture) -> None:
    rows = range(len(picture.regressors))
    ax.barh(rows, dots.means, height=0.7, color="#e3e3e3", zorder=1)
    for i, values in enumerate(dots.values):
        ax.scatter(values, rows, s=22, color=_colour(i), marker=_marker(i), zorder=3)
    ax.set_yticks(rows, picture.regressors)
    for label, name in zip(ax.get_yticklabels(), picture.regressors, strict=True):
        label.set_fontweight("bold" if name == picture.winner else "normal")
    ax.invert_yaxis()
    ax.set_xlim(left=0)
    ax.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}" if share >= 0.1 or not share else f"{share:.1%}")
    ax.set_title(dots.title, fontsize=11)
    ax.grid(axis="x", color="#eeeeee")
    ax.set_axisbelow(True)


def _draw_clouds(ax: Any, picture: Picture) -> None:
    every = [value for cloud in picture.clouds for value in (*cloud.measured, *cloud.predicted)]
    low, high = 0.95 * min(every), 1.05 * max(every)
    ax.plot([low, high], [low, high], color="#999999", linewidth=0.8, zorder=1)
    for i, (name, cloud) in enumerate(zip(picture.networks, picture.clouds, strict=True)):
        ax.scatter(cloud.measured, cloud.predicted, s=16, color=_colour(i), marker=_marker(i), alpha=0.75, label=name)
    ax.set(xlim=(low, high), ylim=(low, high), xlabel="measured", ylabel="predicted while unseen", aspect="equal")
    ax.set_title(f"steps over the best single device,\nby {picture.winner}", fontsize=11)
    ax.legend(fontsize=9, frameon=False, loc="upper left")
    ax.grid(color="#eeeeee")
    ax.set_axisbelow(True)


def _colour(i: int) -> str:
    return COLOURS[i % len(COLOURS)]


def _marker(i: int) -> str:
    return MARKERS[i % len(MARKERS)]
