"""The output of `placer spoc`: a table for each model or graph file, and a sentence about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Column, Table

from experiments.report.console import literal_console
from experiments.report.text import cell

Facts = dict[str, Any]
COLUMNS: tuple[tuple[str, Callable[[Facts], str]], ...] = (
    ("ops", lambda f: f"{f['ops']:,}"),
    ("params", lambda f: _unit(f["parameters"])),
    ("FLOPs", lambda f: _unit(f["operations"])),
    ("MACs", lambda f: _unit(f["multiply_adds"])),
    ("traffic", lambda f: _unit(f["traffic_bytes"], "B")),
    ("hops", lambda f: f"{f['hops']:,}"),
    ("span", lambda f: "-" if f["span"] is None else f"{f['span']:,}"),
    ("chain", lambda f: "-" if f["chain_s"] is None else f"{f['chain_s'] * 1e3:,.3g} ms"),
    ("breadth", lambda f: "-" if f["breadth"] is None else f"{f['breadth']:.2f}"),
)


def show_spoc(entries: Sequence[Facts]) -> None:
    """Print a table of what is known about each entry, and a sentence below it."""
    console = literal_console()
    for entry in entries:
        console.print(_table(entry))
        console.print(f"{entry['reading']}")
        for line in _notes(entry):
            console.print(line, style="dim")


def _table(entry: Facts) -> Table:
    parts = [(part, entry[part]) for part in ("forward", "step") if entry[part] is not None]
    shown = [(name, say) for name, say in COLUMNS if any(say(facts) != "-" for _, facts in parts)]
    heads: tuple[str | Column, ...] = ("", *(Column(name, justify="right") for name, _ in shown))
    title = cell(entry["model"], 200)
    table = Table(*heads, box=SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for part, facts in parts:
        table.add_row(part, *(say(facts) for _, say in shown))
    return table


def _notes(entry: Facts) -> list[str]:
    notes = []
    if entry["step"]["operations"] is None:  # a traced model lacks only the seconds
        held = f"its ops hold {_unit(entry['step']['held_bytes'], 'B')}"
        notes.append(f"not known from this graph: {', '.join(entry['missing'])}; {held}.")
    if entry["step"]["uncounted"]:
        notes.append(f"{entry['step']['uncounted']} ops (loops) are not counted: the figures are lower bounds.")
    if entry.get("parameters_unread"):
        notes.append(f"of the parameters, {entry['parameters_unread']:,} are never read by the step.")
    return notes


def _unit(number: float | None, unit: str = "") -> str:
    """A number with three digits and a prefix, such as 3.86 G."""
    if number is None:
        return "-"
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g} {prefix}{unit}"
    return f"{number:.3g} {unit}".strip()
