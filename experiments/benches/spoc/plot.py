"""The picture of the bench `spoc`: left-out families predicted by FLOPs alone and by SPOC, and correlations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.benches.bench import Facts
from experiments.benches.spoc.analysis import FLOPS, SPOC
from experiments.report.picture import MARKERS, save_picture

WIDTH_IN, HEIGHT_IN = 15.0, 5.4


@dataclass(frozen=True)
class Cloud:
    """Training steps as measured and predicted, in seconds, and the family of each."""

    title: str
    families: tuple[str, ...]
    measured_s: tuple[float, ...]
    predicted_s: tuple[float, ...]


@dataclass(frozen=True)
class Bars:
    """Spearman's correlation of every metric with the time of a step and of an inference."""

    names: tuple[str, ...]
    step: tuple[float, ...]
    inference: tuple[float, ...]


@dataclass(frozen=True)
class Picture:
    """What is drawn, left to right."""

    clouds: tuple[Cloud, ...]
    bars: Bars


def picture_of(facts: Facts) -> Picture:
    """The picture of a bench's facts."""
    step, points = facts["targets"]["step"], facts["targets"]["step"]["points"]
    correlations = {name: facts["targets"][name]["correlations"] for name in ("step", "inference")}
    names = tuple(correlations["step"])
    spearman = {target: tuple(of[name]["spearman"] for name in names) for target, of in correlations.items()}
    return Picture(
        clouds=tuple(
            Cloud(
                f"{name}: {step[key]:.0%} off on average",
                tuple(points["family"]),
                tuple(points["measured_s"]),
                tuple(points[name]),
            )
            for name, key in ((FLOPS, "flops_error"), (SPOC, "spoc_error"))
        ),
        bars=Bars(names, spearman["step"], spearman["inference"]),
    )


def draw(picture: Picture, path: Path) -> None:
    """`picture` as a PNG. Raises PlacerError where it cannot be written."""
    size_in = (WIDTH_IN, HEIGHT_IN)
    save_picture(path, size_in, lambda figure: _fill(figure, picture), dpi=110)


def _fill(figure: Any, picture: Picture) -> None:
    *left, right = figure.subplots(1, len(picture.clouds) + 1, width_ratios=[1.0] * len(picture.clouds) + [0.8])
    limits = _limits(picture)
    for ax, cloud in zip(left, picture.clouds, strict=True):
        _draw_cloud(ax, cloud, limits)
    handles, labels = left[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=10, fontsize=8, frameon=False)
    _draw_bars(right, picture.bars)


def _limits(picture: Picture) -> tuple[float, float]:
    every = [s for cloud in picture.clouds for s in (*cloud.measured_s, *cloud.predicted_s)]
    return 0.8 * min(every), 1.25 * max(every)


def _draw_cloud(ax: Any, cloud: Cloud, limits: tuple[float, float]) -> None:
    from matplotlib import colormaps

    ax.plot(limits, limits, color="#999999", linewidth=0.8, zorder=1)
    for i, family in enumerate(dict.fromkeys(cloud.families)):
        some = [j for j, name in enumerate(cloud.families) if name == family]
        ax.scatter(
            [cloud.measured_s[j] for j in some], [cloud.predicted_s[j] for j in some], s=15, alpha=0.8, zorder=2,
            color=colormaps["tab20"](i % 20), marker=MARKERS[i % len(MARKERS)], label=family,
        )  # fmt: skip
    ax.set(xscale="log", yscale="log", xlim=limits, ylim=limits, aspect="equal")
    ax.set(xlabel="measured training step, s", ylabel="predicted, its family left out, s")
    ax.set_title(cloud.title, fontsize=11)
    ax.grid(color="#eeeeee")
    ax.set_axisbelow(True)


def _draw_bars(ax: Any, bars: Bars) -> None:
    rows = range(len(bars.names))
    ax.barh([r - 0.2 for r in rows], bars.step, height=0.38, color="#4c78a8", label="training step")
    ax.barh([r + 0.2 for r in rows], bars.inference, height=0.38, color="#f58518", label="inference")
    ax.set_yticks(rows, bars.names)
    ax.invert_yaxis()
    ax.set_title("Spearman's correlation with measured time", fontsize=11)
    ax.set_xlim(min(0.0, *bars.step, *bars.inference), 1)
    ax.grid(axis="x", color="#eeeeee")
    ax.set_axisbelow(True)
    ax.legend(fontsize=9, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=2)
