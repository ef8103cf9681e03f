"""The picture of the bench sample-efficiency."""

from __future__ import annotations

from pathlib import Path

from experiments.benches.bench import Facts
from experiments.report.plots.regret import RegretCurve, RegretPanel, draw_regret

PICTURE = Path("docs/regret.png")


def draw(facts: Facts, path: Path) -> None:
    """Draw all networks that were measured, with their first seed. Raises PlacerError if the file cannot be written."""
    panels = []
    for network, row in facts["by_model"].items():
        if "regret" in row:
            peers = [RegretCurve(name, tuple(peer["regret"])) for name, peer in row["searchers"].items()]
            ours = RegretCurve(facts["searcher"], tuple(row["regret"]), ours=True)
            panels.append(RegretPanel(network, (ours, *peers)))
    if panels:
        draw_regret(panels, path)
