"""How searchers compared: facts for machines first, then the table and the report made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.jobs.compare import Comparison, Standing
from experiments.jobs.finding import Row
from experiments.report.regret_plot import Curve, Panel, draw_regret
from experiments.report.text import markdown_table, ms
from placer.files import write_whole
from placer.result import Failed, Measured
from search.offline.plan import DEFAULT_SEARCHER

Facts = dict[str, Any]
HEADS = ("searcher", "step", "spread", "x single", "of best", "best at", "asking")


def comparison_facts(found: Comparison) -> Facts:
    """What `placer compare --json` prints; times in seconds.

    Of `rows` and `singles`, `step_s` was raced and `predicted_s` predicted before; `by` is the searcher that asked the
    mapping first. `best`, `best_single` and what stands directly under a searcher's name was measured side by side at
    the end, and `best_so_far_s` takes these figures where there are any.
    """
    first = {row.mapping.devices: row.searcher for row in reversed(found.measured)}
    return {
        "model": found.model,
        "ops": found.ops,
        "groups": len(found.groups.graph),
        "units": len(found.groups.graph.colocated),
        "devices": list(found.topology.names),
        "default_searcher": DEFAULT_SEARCHER,
        "pins": list(found.settings.search.pins),
        "seed": found.settings.search.seed,
        "measured": len(found.measured),
        "singles": [_row_facts(row, first) for row in found.singles],
        "searchers": {standing.searcher: _standing_facts(found, standing, first) for standing in found.standings},
        "best": _row_facts(found.best, first),
        "best_single": None if found.best_single is None else _row_facts(found.best_single, first),
        "best_known_s": found.best_known_s,
        "lower_bound_s": found.lower_bound_s,
        "in_process_s": found.untouched.step_s,
        "tf_default_s": found.tf_default_s,
        "interrupted": found.interrupted,
        "seconds": found.seconds,
    }


def _standing_facts(found: Comparison, standing: Standing, first: dict[tuple[int, ...], str]) -> Facts:
    final = standing.final.result if standing.final is not None else None
    final = final if isinstance(final, Measured) else None
    single, best = _step_s(found.best_single), _step_s(found.best)
    return {
        "step_s": final.step_s if final else None,
        "spread_s": final.spread_s if final else None,
        "repeats": final.repeats if final else 0,
        "ratio_to_best_single": single / final.step_s if final and single else None,
        "ratio_to_best": best / final.step_s if final and best else None,
        "measured": len(standing.rows),
        "asking_s": standing.asking_s,
        "ended": standing.ended,
        "best_so_far_s": found.best_so_far_s(standing),
        "regret": found.regret(standing),
        "rows": [_row_facts(row, first) for row in standing.rows],
    }


def _row_facts(row: Row, first: dict[tuple[int, ...], str]) -> Facts:
    result = row.result
    measured = result if isinstance(result, Measured) else None
    names = row.mapping.topology.names
    return {
        "by": first.get(row.mapping.devices, row.searcher),
        "step_s": measured.step_s if measured else None,
        "spread_s": measured.spread_s if measured else None,
        "repeats": measured.repeats if measured else 0,
        "predicted_s": row.predicted_s,
        "failed": f"{result.reason}: {result.detail}" if isinstance(result, Failed) else None,
        "groups_per_device": {name: row.mapping.devices.count(d) for d, name in enumerate(names)},
    }


def _step_s(row: Row | None) -> float | None:
    return row.result.step_s if row is not None and isinstance(row.result, Measured) else None


def panel(facts: Facts) -> Panel:
    """A comparison's facts as a picture of regret."""
    curves = [
        Curve(name, tuple(row["regret"]), name == facts["default_searcher"]) for name, row in facts["searchers"].items()
    ]
    return Panel(facts["model"], tuple(curves))


def show_comparison(facts: Facts) -> None:
    """The table of searchers, and in words what it means."""
    console = Console()
    title = f"{facts['model']}: {facts['ops']} ops in {facts['groups']} groups, {facts['measured']} mappings measured"
    table = Table(title=title, title_justify="left")
    for head in HEADS:
        table.add_column(head, justify="left" if head == "searcher" else "right")
    for cells in _table(facts):
        table.add_row(*cells)
    console.print(table)
    for line in comparison_lines(facts):
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def comparison_lines(facts: Facts) -> list[str]:
    """What was found, against what, and why each searcher ended."""
    repeats = facts["best"]["repeats"]
    lines = [f"Interrupted after {facts['measured']} measurements; these are compared."] if facts["interrupted"] else []
    lines += [
        f"Steps: medians of {repeats}, side by side at the end, with the interquartile range. x single: how many times "
        "faster than the best single device. of best: the fastest step's time as a share of this one's. best at: which "
        "of its measurements brought its curve to its end, 0 where it never passed the best single device.",
        f"Best known step of all: {ms(facts['best_known_s'])}. No mapping can be predicted below "
        f"{ms(facts['lower_bound_s'])}.",
    ]
    if facts["tf_default_s"] is not None:
        heedless = ", which heeds no pins" if facts["pins"] else ""
        lines.append(f"TensorFlow's own placement{heedless}, side by side: {ms(facts['tf_default_s'])}.")
    else:
        all_cores = ms(facts["in_process_s"])
        lines.append(f"For reference: one TensorFlow process with all of this machine's cores takes {all_cores}.")
    return [*lines, *(f"{name}: {row['ended']}" for name, row in facts["searchers"].items())]


def _table(facts: Facts) -> list[list[str]]:
    """One line per searcher, the fastest first, and the best single device among them."""
    single = facts["best_single"]
    rows = [(row["step_s"], _cells(name, row)) for name, row in facts["searchers"].items()]
    if single is not None:
        of_best = f"{facts['best']['step_s'] / single['step_s']:.1%}"
        cells = ["best single", ms(single["step_s"]), ms(single["spread_s"]), "1.00", of_best, "", ""]
        rows.append((single["step_s"], cells))
    return [cells for _, cells in sorted(rows, key=lambda row: row[0] or float("inf"))]


def _cells(name: str, row: Facts) -> list[str]:
    asking, tried = f"{row['asking_s']:.1f} s", len(row["rows"])
    if row["step_s"] is None:
        return [name, "failed" if tried else "asked none", "", "", "", f"- of {tried}", asking]
    at = row["best_so_far_s"].index(row["best_so_far_s"][-1])
    ratio = "" if row["ratio_to_best_single"] is None else f"{row['ratio_to_best_single']:.2f}"
    figures = [ms(row["step_s"]), ms(row["spread_s"]), ratio, f"{row['ratio_to_best']:.1%}"]
    return [name, *figures, f"{at} of {tried}", asking]


def write_comparison(facts: Facts, report: Path | None, curves: Path | None) -> None:
    """The report as Markdown, and the regret curves as a picture. Raises PlacerError where one cannot be written."""
    if curves is not None:
        draw_regret([panel(facts)], curves)
    if report is not None:
        write_whole(report, _markdown(facts).encode())


def _markdown(facts: Facts) -> str:
    table = "\n".join(markdown_table(HEADS, _table(facts)))
    lines = "\n".join(f"- {line}" for line in comparison_lines(facts))
    return f"# {facts['model']}: searchers compared\n\n{table}\n\n{lines}\n"
