"""The output of `placer compare`: facts first, then the table, the report and the picture made from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from experiments.jobs.search.comparison import Comparison, Standing
from experiments.jobs.search.finding import Trial, step_s
from experiments.report.console import literal_console
from experiments.report.plots.regret import RegretCurve, RegretPanel, draw_regret
from experiments.report.report_files import write_each
from experiments.report.search_tables import groups_per_device, reference_line, result_facts
from experiments.report.text import cell, markdown_table
from placer.files import write_whole
from placer.graph.mapping import Mapping
from placer.number_format import ms
from search.defaults import DEFAULT_SEARCHER

Facts = dict[str, Any]
HEADS = ("searcher", "step", "spread", "x single", "of best", "best at", "asking")


def comparison_facts(found: Comparison) -> Facts:
    """The facts that `placer compare --json` prints; times are in seconds.

    In `rows` and `singles`, `step_s` comes from a race, `predicted_s` was predicted before it, and `by` is the searcher
    that first asked for the mapping. `best`, `best_single` and the figures of a searcher itself were measured side by
    side at the end; `best_so_far_s` uses these figures if there are any. If `raced`, all figures come from races.
    """
    first = {row.mapping: row.searcher for row in reversed(found.measured)}
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
        "longer": None if found.longer is None else _longer_facts(found.longer),
        "best": _row_facts(found.best, first),
        "best_single": None if found.best_single is None else _row_facts(found.best_single, first),
        "best_known_s": found.best_known_s,
        "lower_bound_s": found.lower_bound_s,
        "in_process_s": found.untouched.step_s,
        "tf_default_s": found.tf_default_s,
        "notes": list(found.notes),
        "interrupted": found.interrupted,
        "raced": found.raced,
        "lost": found.lost or None,
        "seconds": found.seconds,
    }


def _standing_facts(found: Comparison, standing: Standing, first: dict[Mapping, str]) -> Facts:
    final = None if standing.final is None else standing.final.measured
    single_s, best_s = (None if row is None else step_s(row) for row in (found.best_single, found.best))
    return {
        "step_s": final.step_s if final else None,
        "spread_s": final.spread_s if final else None,
        "repeats": final.repeats if final else 0,
        "ratio_to_best_single": single_s / final.step_s if final and single_s else None,
        "ratio_to_best": best_s / final.step_s if final and best_s else None,
        "measured": len(standing.trials),
        "asking_s": standing.asking_s,
        "at_s": list(standing.at_s),
        "ended": standing.ended,
        "notes": list(standing.notes),
        "best_so_far_s": found.best_so_far_s(standing),
        "regret": found.regret(standing),
        "rows": [_row_facts(row, first) for row in standing.trials],
    }


def _longer_facts(standing: Standing) -> Facts:
    final = None if standing.final is None else standing.final.measured
    return {
        "searcher": standing.searcher,
        "measured": len(standing.trials),
        "step_s": final.step_s if final else None,
        "ended": standing.ended,
    }


def _row_facts(row: Trial, first: dict[Mapping, str]) -> Facts:
    by = first.get(row.mapping, row.searcher)
    return {"by": by, **result_facts(row), "groups_per_device": groups_per_device(row)}


def panel(facts: Facts) -> RegretPanel:
    """The regret curves in a comparison's facts."""
    curves = [
        RegretCurve(name, tuple(row["regret"]), name == facts["default_searcher"])
        for name, row in facts["searchers"].items()
    ]
    return RegretPanel(facts["model"], tuple(curves))


def show_comparison(facts: Facts) -> None:
    """Print the table of searchers, and sentences that explain it."""
    console = literal_console()
    title = f"{facts['model']}: {facts['ops']} ops in {facts['groups']} groups, {facts['measured']} mappings measured"
    table = Table(title=cell(title, 200), title_justify="left")
    for head in HEADS:
        table.add_column(head, justify="left" if head == "searcher" else "right")
    for cells in _table(facts):
        table.add_row(*cells)
    console.print(table)
    for line in comparison_lines(facts):
        console.print(line, soft_wrap=True)


def comparison_lines(facts: Facts) -> list[str]:
    """Sentences with the outcome, why each searcher ended, and its notes."""
    lines = [f"Interrupted after {facts['measured']} measurements; these are compared."] if facts["interrupted"] else []
    lines += [f"{facts['lost'].rstrip('.')}. What was measured before is compared."] if facts["lost"] else []
    medians = "medians of the races" if facts["raced"] else f"medians of {facts['best']['repeats']}"
    where = "because none were taken side by side at the end" if facts["raced"] else "side by side at the end"
    lines += [
        f"Steps: {medians}, {where}, with the interquartile range. x single: how many times "
        "faster than the best single device. of best: the fastest step's time as a share of this one's. best at: which "
        "of its measurements brought its curve to its end, 0 where it never passed the best single device.",
        f"Best known step of all: {ms(facts['best_known_s'])}. No mapping can be predicted below "
        f"{ms(facts['lower_bound_s'])}.",
    ]
    lines.append(reference_line(facts["tf_default_s"], facts["in_process_s"], bool(facts["pins"])))
    lines += facts["notes"]
    if longer := facts["longer"]:
        found = "ran nothing" if longer["step_s"] is None else f"found {ms(longer['step_s'])}"
        lines.append(f"{longer['searcher']}: {found} with {longer['measured']} measurements; {longer['ended']}")
    for name, row in facts["searchers"].items():
        lines += [f"{name}: {row['ended']}", *(f"{name}, {note}" for note in row["notes"])]
    return lines


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
    """Write the report as Markdown, and the regret curves as a picture, each by itself.

    Raises PlacerError if one cannot be written.
    """
    write_each(
        (report, lambda path: write_whole(path, _markdown(facts).encode())),
        (curves, lambda path: draw_regret([panel(facts)], path)),
    )


def _markdown(facts: Facts) -> str:
    table = "\n".join(markdown_table(HEADS, _table(facts)))
    lines = "\n".join(f"- {line}" for line in comparison_lines(facts))
    return f"# {facts['model']}: searchers compared\n\n{table}\n\n{lines}\n"
