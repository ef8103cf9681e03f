"""The picture of the bench sample-efficiency."""

from __future__ import annotations

from pathlib import Path

from experiments.benches.bench import Facts
from experiments.report.regret_plot import Curve, Panel, draw_regret

PICTURE = Path("docs/regret.png")


def draw(facts: Facts, path: Path) -> None:
    """All networks that were measured in one picture. Raises PlacerError where the file cannot be written."""
    panels = []
    for network, row in facts["by_model"].items():
        if "regret" in row:
            peers = [Curve(name, tuple(peer["regret"])) for name, peer in row["searchers"].items()]
            panels.append(Panel(network, (Curve(facts["searcher"], tuple(row["regret"]), ours=True), *peers)))
    if panels:
        draw_regret(panels, path)
