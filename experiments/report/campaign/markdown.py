"""The results of a campaign against its baselines, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from experiments.campaign.cells import MEASURED
from experiments.report.campaign.terminal import Facts, best, note_lines, ratio, standing_lines, untouched_lines
from experiments.report.text import markdown_table
from placer.number_format import short_ms


def report_markdown(facts: Facts, after: list[Facts]) -> str:
    """Every cell against its baselines; then each searcher's ratio after each budget of measurements."""
    lines = [f"# Campaign {facts['store']}", "", *standing_lines(facts), ""]
    for case in dict.fromkeys(row["case"] for row in facts["cells"]):
        lines += _case([row for row in facts["cells"] if row["case"] == case])
    return "\n".join([*lines, *_after(after)])


def _case(rows: list[Facts]) -> list[str]:
    first = rows[0]
    judged = "predicted" if first["kind"] == "predicted" else "measured"
    heads = ("searcher", "seed", "measured" if judged == "measured" else "tried", "best", "x best single", "state")
    table = [[row["searcher"], str(row["seed"]), str(row["done"]), best(row), ratio(row), _ended(row)] for row in rows]
    return [
        f"## {first['case']} ({judged})",
        "",
        *_baselines(rows),
        *untouched_lines(rows),
        "",
        *markdown_table(heads, table, left=(0, 5)),
        "",
        *(f"{line}\n" for line in note_lines(rows)),
    ]


def _ended(row: Facts) -> str:
    return f"{row['state']}: {row['ended']}" if row["ended"] else str(row["state"])


def _baselines(rows: list[Facts]) -> list[str]:
    """A sentence with the baselines of the best mapping."""
    first = rows[0]
    single, bound, untouched = (first[name] for name in ("best_single_s", "bound_s", "untouched_s"))
    said = []
    if single is not None:
        said.append(f"the best single device takes {short_ms(single)}")
    if untouched is not None:
        what = (
            "the untouched step"
            if first["untouched_beside"]
            else "one TensorFlow process with all of this machine's cores"
        )
        said.append(f"{what} {short_ms(untouched)}")
    if bound:
        said.append(f"no mapping can be predicted below {short_ms(bound)}")
    return [f"Baselines: {', '.join(said)}." if said else "Nothing was opened yet, so there is no baseline."]


def _after(rows: Iterable[Facts]) -> list[str]:
    rows = list(rows)
    budgets = list(dict.fromkeys(budget for row in rows for budget in row["after"]))
    heads = ("case", "searcher", "seeds", *(f"after {budget}" for budget in budgets))
    table = [
        [row["case"], row["searcher"], str(row["seeds"]), *(_ratio_after(row, budget) for budget in budgets)]
        for row in rows
    ]
    said = "Times faster than the best single device after so many measurements, the median over seeds"
    if any(row["kind"] == MEASURED for row in rows):
        said += "; with a ~, by races, of which the luckiest looks too good, and not above what was found side by side"
    return ["## After so many measurements", "", f"{said}:", "", *markdown_table(heads, table, left=(0, 1)), ""]


def _ratio_after(row: Facts, budget: str) -> str:
    ratio = row["after"][budget]
    raced = row["kind"] == MEASURED and not row["side_by_side"][budget]
    return "" if ratio is None else f"{'~' if raced else ''}{ratio:.2f}"
