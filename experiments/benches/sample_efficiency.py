"""How few measured mappings each searcher needs to come near the best known; made of the runs of search-quality."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev

from experiments.benches.bench import BenchOptions, Facts, ms
from experiments.benches.comparisons import MEASUREMENTS, comparisons, how_raced, not_compared
from experiments.benches.takes import Takes
from experiments.jobs.search.compare import MARKS
from experiments.report.plots.regret import RegretCurve, RegretPanel, draw_regret
from experiments.report.text import markdown_table, percent
from search.offline.plan import DEFAULT_SEARCHER

AT = MARKS
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
        "measured_again_at": list(MARKS),
        "races_apart": True,
        "searcher": DEFAULT_SEARCHER,
        "measurements": options.measurements or MEASUREMENTS,
        "peer_measurements": options.measurements or MEASUREMENTS,
        "workers": options.workers,
    }


def gaps(facts: Facts) -> Facts:
    """One comparison: after 5, 10 and 20 measured mappings, or the last one, and when the gap was first below NEAR,
    where it also was at the end.
    """
    if "failed" in facts:
        return {"failed": facts["failed"]}
    default = facts["searchers"].get(facts["default_searcher"])
    until_s = default["at_s"] if default else []
    rows = {name: _gaps_of(row, until_s) for name, row in facts["searchers"].items()}
    ours = rows.get(facts["default_searcher"])
    return {
        **(ours or {}),
        "best_known_s": facts["best_known_s"],
        "fastest_by": facts["best"]["by"],
        "searchers": {name: row for name, row in rows.items() if row is not ours},
    }


def _gaps_of(row: Facts, until_s: Sequence[float]) -> Facts:
    """until_s: when the default searcher had its results; `gap_in_time_of_5` is what this one had in the same time."""
    regret: list[float | None] = row["regret"]
    measured = len(regret) - 1
    first_near = next((i for i, gap in enumerate(regret) if _is_near(gap)), None)
    return {
        **{f"gap_at_{count}": regret[min(count, measured)] for count in AT},
        **{
            f"gap_in_time_of_{count}": regret[bisect_right(row["at_s"], until_s[min(count, len(until_s)) - 1])]
            for count in AT
            if until_s
        },
        "seconds": row["at_s"][-1] if row["at_s"] else 0.0,
        "gap": regret[-1],
        "near_after": first_near if _is_near(regret[-1]) else None,
        "measured": measured,
        "regret": regret,
    }


def _is_near(gap: float | None) -> bool:
    return gap is not None and gap <= NEAR


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
        f"{_how(facts)} The gap after a searcher's last measurement is that of the mapping it would deliver, and "
        f"*within {NEAR:.0%}* counts the networks on which that gap is. A gap of a percent or two is noise. These are "
        f"the runs of search-quality, with one seed. {how_raced(facts)}{not_compared(facts)}",
        "",
        "Over all networks, the mean with its standard error:",
        "",
        *markdown_table(
            ("searcher", *(f"after {count}" for count in AT), f"within {NEAR:.0%}"),
            [_over_all(name, [rows[name] for rows in curves.values() if name in rows]) for name in names],
        ),
        "",
        *_at_equal_seconds(facts["searcher"], names, curves),
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


def _how(facts: Facts) -> str:
    """Where the figures are from."""
    if "measured_again_at" not in facts:
        return (
            "Best known is the fastest of the mappings that were measured side by side at the end: each searcher's "
            "fastest, and the next fastest of all. A mapping's figure is from there if it got that far, otherwise from "
            "its race, all scaled to one reference mapping; because a race is short, no figure from one counts as "
            "faster than the best known, but the luckiest of many may count as fast."
        )
    return (
        "Best known is the fastest of the mappings that were measured side by side at the end: each searcher's "
        "best, its fastest if that lost a race, what it would have delivered after so many, which is the "
        "winner of its races until then or the fastest that these stopped early, and the next fastest of all. The "
        "figures of the tables by counts are from "
        "there. Those at equal seconds and in the picture, where they are between these counts, are from races, scaled "
        "to one reference mapping, but not below what the searcher delivers at the end."
    )


def _curves(searcher: str, row: Facts) -> dict[str, Facts]:
    """The gaps of each searcher of one network, ours first; none where it was not searched."""
    return {searcher: row, **row["searchers"]} if "regret" in row else {}


def _over_all(name: str, rows: Sequence[Facts]) -> list[str]:
    gaps = [[row[f"gap_at_{count}"] for row in rows if row[f"gap_at_{count}"] is not None] for count in AT]
    near = sum(row["near_after"] is not None and _is_near(row["gap"]) for row in rows)
    return [name, *map(_mean, gaps), f"{near} of {len(rows)}"]


def _at_equal_seconds(searcher: str, names: Sequence[str], curves: Mapping[str, Mapping[str, Facts]]) -> list[str]:
    """The table over seconds; nothing where a record has none."""
    if not all("seconds" in row for rows in curves.values() for row in rows.values()):
        return []
    return [
        f"At equal seconds: what each had when `{searcher}` had its {AT[0]}th, {AT[1]}th and {AT[2]}th result, or its "
        "last, by what asking and measuring take. A mapping takes its share of the race that it was measured in, also "
        "where another searcher had asked it first. *Seconds*: until the searcher had all its results. The profile and "
        "the single devices come before, for all.",
        "",
        *markdown_table(
            ("searcher", *(f"in the time of {count}" for count in AT), "seconds"),
            [_in_time(name, [rows[name] for rows in curves.values() if name in rows]) for name in names],
        ),
        "",
    ]


def _in_time(name: str, rows: Sequence[Facts]) -> list[str]:
    gaps = [[gap for row in rows if (gap := row.get(f"gap_in_time_of_{count}")) is not None] for count in AT]
    return [name, *map(_mean, gaps), f"{mean(row['seconds'] for row in rows):.0f} s"]


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
