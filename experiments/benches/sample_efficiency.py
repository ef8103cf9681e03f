"""How few measured mappings each searcher needs to come near the best known; made of the runs of search-quality."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from experiments.benches.bench import BenchOptions, Facts, ms
from experiments.benches.comparisons import MEASUREMENTS, comparisons, not_compared
from experiments.benches.takes import Takes
from experiments.report.plots.regret import RegretCurve, RegretPanel, draw_regret
from experiments.report.text import markdown_table, percent
from search.offline.plan import DEFAULT_SEARCHER

AT = (5, 10, 20)
NEAR = 0.05
PICTURE = Path("docs/regret.png")
TAKES = Takes(workers=True, runs=True)


def bench_facts(options: BenchOptions) -> Facts:
    """Gaps to the best known after so many measured mappings."""
    by_model = {name: gaps(facts) for name, facts in comparisons(options).items()}
    known = [row["gap_at_20"] for row in by_model.values() if row.get("gap_at_20") is not None]
    return {
        "gap_at_20": max(known, default=None),
        "by_model": by_model,
        "searcher": DEFAULT_SEARCHER,
        "measurements": options.measurements or MEASUREMENTS,
        "peer_measurements": options.measurements or MEASUREMENTS,
        "workers": options.workers,
    }


def gaps(facts: Facts) -> Facts:
    """One comparison: after 5, 10 and 20 measured mappings, or the last one, and when the gap was first below NEAR."""
    if "failed" in facts:
        return {"failed": facts["failed"]}
    rows = {name: _gaps_of(row["regret"]) for name, row in facts["searchers"].items()}
    ours = rows.get(facts["default_searcher"])
    return {
        **(ours or {}),
        "best_known_s": facts["best_known_s"],
        "fastest_by": facts["best"]["by"],
        "searchers": {name: row for name, row in rows.items() if row is not ours},
    }


def _gaps_of(regret: list[float | None]) -> Facts:
    measured = len(regret) - 1
    return {
        **{f"gap_at_{count}": regret[min(count, measured)] for count in AT},
        "gap": regret[-1],
        "near_after": next((i for i, r in enumerate(regret) if r is not None and r <= NEAR), None),
        "measured": measured,
        "regret": regret,
    }


def page_lines(facts: Facts) -> list[str]:
    """Every searcher after 5, 10 and 20 measured mappings, by network and over all, and the picture."""
    models = facts["by_model"]
    curves = {model: _curves(facts["searcher"], row) for model, row in models.items()}
    names = list(dict.fromkeys(name for rows in curves.values() for name in rows))
    return [
        "How much slower each searcher's fastest mapping was than the best known of the comparison, after "
        f"{', '.join(map(str, AT[:-1]))} and {AT[-1]} measured mappings of its own, the {facts['workers']} single "
        f"devices aside, or after its last, where it stopped before; `{facts['searcher']}` had {facts['measurements']} "
        f"at most, each other one {facts['peer_measurements']}. The single devices count as every searcher's start. "
        "Best known is the fastest of the mappings that were measured side by side at the end: each searcher's "
        "fastest, and the next fastest of all. A mapping's figure is from there if it got that far, otherwise from its "
        "race, all scaled to one reference mapping; because a race is short, no figure from one counts as faster than "
        "the best known. The gap after a searcher's last measurement is that of the mapping it would deliver. A gap of "
        f"a percent or two is noise. These are the runs of search-quality.{not_compared(facts)}",
        "",
        "Over all networks, the mean with its standard error:",
        "",
        *markdown_table(
            ("searcher", *(f"after {count}" for count in AT), f"within {NEAR:.0%}"),
            [_over_all(name, [rows[name] for rows in curves.values() if name in rows]) for name in names],
        ),
        "",
        "By network:",
        "",
        *markdown_table(
            ("network", "best known", "fastest at the end by", *names),
            [_cells(model, row, curves[model], names) for model, row in models.items()],
            left=(0, 2),
        ),
        "",
        f"![Gap to the best known over measured mappings]({PICTURE})",
    ]


def _curves(searcher: str, row: Facts) -> dict[str, Facts]:
    """The gaps of each searcher of one network, ours first; none where it was not searched."""
    return {searcher: row, **row["searchers"]} if "regret" in row else {}


def _over_all(name: str, rows: Sequence[Facts]) -> list[str]:
    gaps = [[row[f"gap_at_{count}"] for row in rows if row[f"gap_at_{count}"] is not None] for count in AT]
    near = sum(row["near_after"] is not None for row in rows)
    return [name, *map(_mean, gaps), f"{near} of {len(rows)}"]


def _mean(gaps: Sequence[float]) -> str:
    if not gaps:
        return "-"
    error = f" +- {stdev(gaps) / len(gaps) ** 0.5:.1%}" if len(gaps) > 1 else ""
    return f"{mean(gaps):.1%}{error}"


def _cells(model: str, row: Facts, curves: dict[str, Facts], names: Sequence[str]) -> list[str]:
    if not curves:
        return [f"`{model}`", row.get("failed") or "not searched"]
    return [f"`{model}`", ms(row["best_known_s"]), row["fastest_by"], *(_gaps(curves.get(name)) for name in names)]


def _gaps(row: Facts | None) -> str:
    return "-" if row is None else " / ".join(percent(row[f"gap_at_{count}"]) for count in AT)


def draw(facts: Facts, path: Path) -> None:
    """All networks that were measured in one picture. Raises PlacerError where the file cannot be written."""
    panels = []
    for network, row in facts["by_model"].items():
        if "regret" in row:
            peers = [RegretCurve(name, tuple(peer["regret"])) for name, peer in row["searchers"].items()]
            panels.append(
                RegretPanel(network, (RegretCurve(facts["searcher"], tuple(row["regret"]), ours=True), *peers))
            )
    if panels:
        draw_regret(panels, path)
