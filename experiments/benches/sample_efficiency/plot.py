"""The picture of the bench sample-efficiency."""

from __future__ import annotations

from pathlib import Path

from experiments.benches.bench import Facts
from experiments.report.regret_plot import Curve, Panel, draw_regret
from placer.errors import PlacerError


def draw(facts: Facts, path: Path) -> None:
    """All networks in one picture. Raises PlacerError where it cannot be written."""
    panels = [
        Panel(name, (_curve(facts["searcher"], row, True), *(_curve(n, r) for n, r in row["searchers"].items())))
        for name, row in facts["by_model"].items()
        if "regret" in row
    ]
    if not panels:
        return
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise PlacerError(f"{path.parent}: cannot be made ({error.strerror}).") from error
    draw_regret(panels, path)


def _curve(name: str, row: Facts, ours: bool = False) -> Curve:
    return Curve(name, tuple(row["regret"]), ours)
