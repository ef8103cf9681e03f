"""The output of `placer profile`: facts first, then the table of operator families."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from experiments.jobs.profile import ProfileResult
from experiments.report.console import literal_console
from experiments.report.text import cell, percent
from surrogate.operators.models import SMALL_S, OperatorModels

Facts = dict[str, Any]


def profile_facts(found: ProfileResult) -> Facts:
    """The facts that `placer profile --json` prints; errors are fractions."""
    return {
        "networks": sorted({name for models in found.models for name in models.networks}),
        "devices": list(found.devices),
        "rows": len(found.rows),
        "rows_fitted": sum(models.rows for models in found.models),
        "counted_from_s": SMALL_S,
        "families": [row for models in found.models for row in family_facts(models)],
        "seconds": found.seconds,
    }


def family_facts(models: OperatorModels) -> list[Facts]:
    """For each family, its rows, the chosen regressor, and its cross-validated errors (None if they are not known).
    rows_tried: the rows that were cross-validated; 0 if none was.
    """
    facts = []
    for family, model in models.by_family.items():
        score = model.scores.get(model.choice)
        facts.append(
            {
                "device_kind": models.device_kind,
                "family": family,
                "rows": model.rows,
                "rows_tried": model.tried,
                "regressor": model.choice,
                "mape_unseen_shapes": None if score is None else score.shapes,
                "mape_unseen_networks": None if score is None else score.networks,
                "mape_time_weighted": None if score is None else score.weighted,
            }
        )
    return facts


def rows_in_words(row: Facts) -> str:
    """How many rows a family has, and on how many its regressor was chosen and its errors found, if on fewer."""
    tried = row.get("rows_tried") or row["rows"]
    return f"{row['rows']}" if tried >= row["rows"] else f"{row['rows']} (errors of {tried})"


def show_profile(found: ProfileResult) -> None:
    """Print the families as a table for each kind of device."""
    console = literal_console()
    for models in found.models:
        title = f"operator models, {models.device_kind}: {models.rows} rows of {', '.join(models.networks)}"
        table = Table(title=cell(title, 1000), title_justify="left")
        table.add_column("family", no_wrap=True)
        for column in ("rows", "regressor", "MAPE, unseen shapes", "unseen networks", "weighted by time"):
            table.add_column(column, justify="left" if column == "regressor" else "right")
        for row in family_facts(models):
            cells = (percent(row[f"mape_{name}"]) for name in ("unseen_shapes", "unseen_networks", "time_weighted"))
            table.add_row(row["family"], rows_in_words(row), row["regressor"], *cells)
        console.print(table)
    console.print(
        f"Cross-validated; over ops of at least {SMALL_S * 1e6:.0f} us, or all of a family that has none. "
        f"{len(found.rows)} rows measured on {', '.join(found.devices)} in {found.seconds:.0f} s.",
    )
