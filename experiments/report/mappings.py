"""The output of `placer show` and `placer diff`: a mapping, and the differences between two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Column, Table

from experiments.report.console import literal_console
from experiments.report.text import cell, split_idle
from placer.number_format import mib, ms

Facts = dict[str, Any]
MOST_PAIRS = 40  # of devices between which tensors cross, or ops moved, listed one by one


def show_mapping(facts: Facts) -> None:
    """Print what each device runs, what crosses between devices, and what is known about the step."""
    console = literal_console()
    has_more = facts["checked"]
    table = Table("device", *_right("ops", *(["busy", "memory"] if has_more else [])))
    rows, idle = split_idle(list(facts["devices"].items()), lambda row: not row[1]["ops"])
    for name, device in rows:
        more = [_busy(device["busy_s"]), mib(device["memory_bytes"])] if has_more else []
        table.add_row(cell(name), f"{device['ops']:,}", *more)
    console.print(cell(_title(facts), 200), style="bold")
    console.print(table)
    if idle:
        console.print(f"... and {idle} devices that run no op.")
    if facts["crossing"]:
        table = Table("from", "to", *_right("tensors", "in all"))
        largest = sorted(facts["crossing"], key=lambda link: link["bytes"], reverse=True)
        for link in largest[:MOST_PAIRS]:
            table.add_row(cell(link["src"]), cell(link["dst"]), f"{link['tensors']:,}", mib(link["bytes"]))
        console.print(table)
        if rest := largest[MOST_PAIRS:]:
            console.print(
                f"... and {len(rest)} pairs of devices with {mib(sum(link['bytes'] for link in rest))} in all."
            )
    for line in _lines(facts):
        console.print(line)
    if not has_more:
        console.print("Not checked: give --graph and --topology, or the folder of a search.", style="dim")


def show_difference(facts: Facts) -> None:
    """Print how many ops moved between which devices, and to which layers they belong."""
    console = literal_console()
    if facts["same_graph"] is False:
        graphs = " and ".join(cell(_title(facts[which]), 200) for which in ("one", "other"))
        console.print(f"These mappings are of different graphs, {graphs}: ops are compared by name.")
    said = f"{facts['moved']:,} of {facts['moved'] + facts['same']:,} ops run on another device"
    alone = [f"{facts[key]:,} only in the {which}" for key, which in _ALONE if facts[key]]
    console.print("; ".join([said, *alone]) + ".")
    if facts["moves"]:
        table = Table("from", "to", *_right("ops"))
        for move in facts["moves"][:MOST_PAIRS]:
            table.add_row(cell(move["src"]), cell(move["dst"]), f"{move['ops']:,}")
        console.print(table)
        if rest := facts["moves"][MOST_PAIRS:]:
            console.print(
                f"... and {sum(move['ops'] for move in rest):,} ops between {len(rest)} other pairs of devices."
            )
        table = Table("layer", "from", "to", *_right("ops"))
        for scope in facts["scopes"]:
            count = f"{scope['ops']:,} of {scope['of']:,}"
            table.add_row(cell(scope["scope"] or "(no scope)"), cell(scope["src"]), cell(scope["dst"]), count)
        console.print(table)
        if left := facts["moved"] - sum(scope["ops"] for scope in facts["scopes"]):
            console.print(f"... and {left:,} ops of other layers, or of these between other devices.")
    for which in ("one", "other"):
        if facts[which]["measured_s"] is not None:
            console.print(f"{which}: {_measured(facts[which])}")


_ALONE = (("only_one", "first"), ("only_other", "second"))


def _right(*heads: str) -> Iterator[Any]:
    return (Column(head, justify="right") for head in heads)


def _busy(seconds: float | None) -> str:
    return "-" if seconds is None else ms(seconds)


def _title(facts: Facts) -> str:
    graph = facts["graph"]
    named = "a graph that the file does not name" if graph is None else f"{graph['name']} ({graph['fingerprint'][:8]})"
    return f"{named}, {facts['ops']:,} ops"


def _lines(facts: Facts) -> Iterator[str]:
    """Lines with everything in the file other than the devices of ops."""
    if facts["measured_s"] is not None:
        yield f"measured: {_measured(facts)}"
    if facts["predicted_s"] is not None:
        bound = "" if facts["lower_bound_s"] is None else f", no mapping takes less than {ms(facts['lower_bound_s'])}"
        yield f"predicted: {ms(facts['predicted_s'])} ({facts['objective'] or 'objective not said'}){bound}"
    baselines = [f"{name} {ms(seconds)}" for name, seconds in facts["baseline"].items() if seconds is not None]
    if baselines:
        yield cell(f"beside it: {', '.join(baselines)}", 200)
    if facts["searcher"] is not None:
        seed = "" if facts["seed"] is None else f", seed {facts['seed']}"
        yield cell(f"found by {facts['searcher']}{seed}", 200)
    for region in facts["splits"]:
        yield cell(f"divided: {region['ops']:,} ops along {region['way']} into {region['parts']} parts", 200)
    if facts["in_flight"] is not None:
        yield f"the parts are micro-batches, at most {facts['in_flight']} under way at once"
    if facts["ordered"]:
        yield f"run order: given for {facts['ordered']:,} ops"


def _measured(facts: Facts) -> str:
    said = ms(facts["measured_s"])
    if facts["spread_s"] is not None:
        said += f" +- {ms(facts['spread_s'])}"
    if facts["repeats"] is not None:
        said += f" a step, {facts['repeats']} repeats"
    ratio = facts["ratio_to_best_single"]
    return said + ("" if ratio is None else f", {ratio:.2f} times as fast as the best single device")
