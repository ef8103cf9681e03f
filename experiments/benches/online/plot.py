"""The picture of the bench online: how near the best known speed a training is, step by step after a load landed."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from statistics import median
from typing import Any

from experiments.benches.bench import Facts
from experiments.benches.online.neighbours import LOADS, SHARE
from experiments.report.plots.picture import COLOURS, light_grid, save_picture

PICTURE = Path("docs/online.png")
SIZE_IN = (10.0, 6.0)
WINDOW = 5  # steps of a running median


def draw(facts: Facts, path: Path) -> None:
    """Draw the bench's facts. Raises PlacerError if the file cannot be written."""
    save_picture(path, SIZE_IN, lambda figure: fill(figure, facts), dpi=120)


def fill(figure: Any, facts: Facts) -> None:
    """A panel for each load, in it a line for each network."""
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(_networks(facts))}
    for ax, (name, load) in zip(axes.flat, LOADS.items(), strict=True):
        for row in facts["loads"]:
            if row["load"] == name and "landed" in row:
                shares = shares_of(row["landed"])
                steps = range(WINDOW, WINDOW + len(shares))
                ax.plot(steps, shares, color=colours[row["model"]], linewidth=1.4, label=row["model"])
        ax.axhline(SHARE, color="#999999", linewidth=1.0, linestyle="--", zorder=1)
        ax.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        ax.set_ylim(0, 1.15)
        light_grid(ax, load.name)
    for ax in axes[-1]:
        ax.set_xlabel("steps since the load landed; dips: probes, and mappings that were tried", fontsize=9)
    figure.supylabel("share of the best known speed", fontsize=10)
    lines = {line.get_label(): line for ax in axes.flat for line in ax.get_lines() if line.get_label() in colours}
    if lines:
        figure.legend(lines.values(), lines.keys(), loc="outside upper center", ncols=len(lines), frameon=False)


def shares_of(landed: Facts) -> Sequence[float]:
    """The optimum's step time, at the machine's speed as the table has it, divided by the running median step time."""
    took, optimum_s = landed["took_s"], landed["optimum_s"] * sqrt(landed.get("pace", 1.0))
    return [optimum_s / median(took[n - WINDOW : n]) for n in range(WINDOW, len(took) + 1)]


def _networks(facts: Facts) -> list[str]:
    return list(dict.fromkeys(row["model"] for row in facts["loads"]))
