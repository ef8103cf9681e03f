"""The output of `placer scale`: tables and sentences; experiments/report/plots/scaling.py draws the curves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rich.table import Table

from experiments.report.console import literal_console
from experiments.report.plots.scaling import ScalingCurve, SgdCurve
from experiments.report.text import MOST, cell, printable
from placer.number_format import ms
from surrogate.scaling.model import LEVEL, Value
from surrogate.scaling.sync_sgd import Iteration

Facts = dict[str, Any]
NOTHING = 1e-6  # a smaller constant is printed as 0
TEXT_COLUMNS = 72  # of an iteration drawn as text


def show_fit(facts: Facts) -> None:
    """Print the formula, the effect of each column, the constants, and the reading in sentences."""
    console = literal_console()
    console.print(printable(facts["formula"], MOST), soft_wrap=True)
    of_more = f", drawn at random from {facts['drawn_from']}" if facts["drawn_from"] else ""
    console.print(
        f"{facts['rows']} runs{of_more}; off by {facts['mape']:.1%} on average, on runs left out by "
        f"{facts['mape_cv']:.1%} (penalty {facts['penalty']}, weight {facts['weight']:g})",
    )
    table = Table("column", title="what the columns do", title_justify="left")
    for column in ("matters", "highest / lowest", "power", f"in {LEVEL:.0%} of samples"):
        table.add_column(column, justify="right")
    for row in facts["factors"]:
        power = ("", "") if row["power"] is None else (f"{row['power']:.2f}", f"{row['low']:.2f} to {row['high']:.2f}")
        table.add_row(cell(row["name"]), f"{row['matters']:.0%}", f"{row['ratio']:.3g}x", *power)
    console.print(table)
    table = Table("constant", title="constants, of columns over their typical values", title_justify="left")
    for column in ("value", f"in {LEVEL:.0%} of samples"):
        table.add_column(column, justify="right")
    for name, row in facts["constants"].items():
        value, low, high = (f"{row[key]:.3g}" if abs(row[key]) > NOTHING else "0" for key in ("value", "low", "high"))
        table.add_row(cell(name), value, f"{low} to {high}")
    console.print(table)
    for line in facts["reading"]:
        console.print(line, soft_wrap=True)


def show_prediction(facts: Facts) -> None:
    """Print the prediction as a table, with a row for each value of the column that varies."""
    console = literal_console()
    run = ", ".join(f"{key} {_plain(value)}" for key, value in facts["run"].items())
    console.print(printable(f"{facts['target']} of a run with {run}", MOST), soft_wrap=True)
    if facts["assumed"]:
        console.print(printable(f"(usual values: {', '.join(facts['assumed'])})", MOST), soft_wrap=True)
    table = Table(cell(facts["vary"] or ""))
    for column in (facts["target"], f"{facts['level']:.0%} of runs", "x the first"):
        table.add_column(cell(column), justify="right")
    for row in facts["rows"]:
        interval = f"{row['low']:.4g} to {row['high']:.4g}"
        value = "" if row["value"] is None else _plain(row["value"])
        table.add_row(cell(value), f"{row[facts['target']]:.4g}", interval, f"{row['ratio']:.3g}")
    console.print(table)
    for phrase in facts["outside"]:
        console.print(f"Outside what was measured: {phrase}.", soft_wrap=True)
    if facts["stops_paying"]:
        console.print(facts["stops_paying"], soft_wrap=True)


def prediction_curve(facts: Facts, measured: tuple[float, float] | None) -> ScalingCurve:
    """The rows as a curve along the column that varies. measured: the range of that column in the runs."""
    name, rows = facts["vary"], facts["rows"]
    run = ", ".join(f"{key} {_plain(value)}" for key, value in facts["run"].items())
    at = tuple(row["value"] if isinstance(row["value"], str) else float(row["value"]) for row in rows)
    return ScalingCurve(
        title=printable(run, 110),
        x_name=printable(name, 40),
        y_name=printable(facts["target"], 40),
        at=at,
        value=tuple(row[facts["target"]] for row in rows),
        low=tuple(row["low"] for row in rows),
        high=tuple(row["high"] for row in rows),
        measured=measured,
    )


def drawn(found: Iteration) -> str:
    """The iteration as text, its layers numbered in the order of the forward pass, so 3, 2, 1 in the backward pass."""
    names = list(dict.fromkeys(p.name for p in found.pieces if p.name not in ("io", "copy", "forward", "update")))
    letter = {name: str((len(names) - i) % 10) for i, name in enumerate(names)}
    pieces = [piece._replace(name=letter.get(piece.name, piece.name[0])) for piece in found.pieces]
    return replace(found, pieces=tuple(pieces)).as_text(found.iteration_s / TEXT_COLUMNS)


def sgd_curve(facts: Facts) -> SgdCurve:
    """The rows as a curve for a picture."""
    return SgdCurve(f"{printable(facts['graph'], 60)}: synchronous SGD, {facts['form']}", tuple(facts["rows"]))


def show_sgd(facts: Facts, last: Iteration) -> None:
    """Print a row per number of devices, and the last iteration as text."""
    console = literal_console()
    title = f"{facts['graph']}: synchronous SGD, {facts['form']}, batch {facts['batch']}"
    table = Table("devices", title=cell(title), title_justify="left")
    for column in ("iteration", "speed-up", "efficiency", "compute", "network", "waits"):
        table.add_column(column, justify="right")
    for row in facts["rows"]:
        times = [ms(row[key], 1) for key in ("compute_s", "network_s", "exposed_s")]
        iteration_s = ms(row["iteration_s"], 1)
        table.add_row(str(row["devices"]), iteration_s, f"{row['speedup']:.2f}x", f"{row['efficiency']:.0%}", *times)
    console.print(table)
    console.print(f"On {facts['rows'][-1]['devices']} devices:")
    console.print(drawn(last), soft_wrap=True)
    if facts["assumed_alike"]:
        console.print(f"{facts['assumed_alike']} devices more than the topology has are assumed to be like these.")
    if facts["stops_paying"] is not None:
        line = f"From {facts['stops_paying']} devices on, one more brings less than {facts['pays']:.0%}."
        console.print(line)
    if facts["note"]:
        console.print(facts["note"], soft_wrap=True)


def _plain(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:g}"
