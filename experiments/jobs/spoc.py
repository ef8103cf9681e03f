"""`placer spoc`: Size, Parameters, Operations and Critical datapath length of models and graph files, and a reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from experiments import zoo
from experiments.jobs.spoc_reading import reading
from placer.errors import BadInputError
from placer.graph.graph_files import read_graph
from placer.graph.op_graph import OpGraph
from surrogate.features.spoc import Spoc, forward, spoc

if TYPE_CHECKING:  # graph files are read without TensorFlow
    from placer.trace.capture import Captured

Facts = dict[str, Any]
DERIVED = ("parallelism", "breadth", "narrowness", "operations_per_op", "intensity")
MISSING = {
    "parameters": "parameters",
    "operations": "operations and multiply-adds",
    "span": "span",
    "chain_s": "seconds of the longest chain",
}


class Counted(NamedTuple):
    """Parameters of a step. read: elements of the model's variables in its graph; unread: of those that it never reads,
    such as the statistics of a normalisation that was not adapted.
    """

    read: int
    unread: int = 0

    @property
    def total(self) -> int:
        """All elements: what Keras's `count_params` says of a model."""
        return self.read + self.unread


def spoc_command(models: Sequence[str], batch: int | None = None) -> list[Facts]:
    """What `placer spoc --json` prints, an entry per model. Raises BadInputError before anything is traced."""
    if batch is not None and batch < 1:
        raise BadInputError(f"--batch is {batch}; give a number of examples >= 1.")
    return [tell() for tell in [_teller(model, batch) for model in models]]


def _teller(model: str, batch: int | None) -> Callable[[], Facts]:
    """Reads what can be read at once; tracing is left for later."""
    if ":" not in model and (model.endswith(".json") or Path(model).is_file()):
        graph = read_graph(model)
        return lambda: graph_facts(model, graph)
    zoo.find(model)
    return lambda: model_facts(model, batch)


def model_facts(model: str, batch: int | None = None) -> Facts:
    """SPOC of a model's training step, traced but not run."""
    from placer.trace.capture import capture

    training = zoo.load(model, batch=batch)
    captured = capture(training.step, training.example_inputs, model)
    counted = parameters(captured, training.model)
    return graph_facts(model, captured.graph, counted.total) | {
        "batch": next((t.shape[0] for t in training.example_inputs if t.shape.rank), None),
        "parameters_unread": counted.unread,
    }


def graph_facts(model: str, graph: OpGraph, count: int | None = None) -> Facts:
    """SPOC of a graph, of its forward part where phases are known, and the reading. count: its parameters."""
    step, ahead = spoc(graph, count), forward(graph)
    first = None if ahead is None or len(ahead) == len(graph) else spoc(ahead, count)
    numbers = asdict(step)
    return {
        "model": model,
        "step": _facts(step),
        "forward": None if first is None else _facts(first),
        "missing": [said for key, said in MISSING.items() if numbers[key] is None],
        "reading": reading(step, first),
    }


def _facts(found: Spoc) -> Facts:
    return {**asdict(found), **{name: getattr(found, name) for name in DERIVED}}


def parameters(captured: Captured, model: Any = None) -> Counted:
    """Parameters of a captured step: the floating-point variables of its forward part.

    model: the keras.Model, which also has those that the step never reads; None where it was not handed over.
    """
    part = forward(captured.graph)
    names = () if part is None else (op.name for op in part.ops if op.name in captured.variables)
    read = sum(_elements(v) for v in map(captured.variables.__getitem__, names) if v.dtype.is_floating)
    if model is None:
        return Counted(read)
    seen = {id(variable) for variable in captured.variables.values()}
    return Counted(read, sum(_elements(weight) for weight in model.weights if id(weight.value) not in seen))


def _elements(variable: Any) -> int:
    return prod(variable.shape)


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
    """A table for each, of what is known of it, and under it a sentence."""
    console = Console()
    for entry in entries:
        console.print(_table(entry))
        console.print(f"{entry['reading']}", highlight=False, markup=False)
        for line in _notes(entry):
            console.print(line, highlight=False, style="dim")


def _table(entry: Facts) -> Table:
    parts = [(part, entry[part]) for part in ("forward", "step") if entry[part] is not None]
    shown = [(name, say) for name, say in COLUMNS if any(say(facts) != "-" for _, facts in parts)]
    heads: tuple[str | Column, ...] = ("", *(Column(name, justify="right") for name, _ in shown))
    title = escape(entry["model"])
    table = Table(*heads, box=SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for part, facts in parts:
        table.add_row(part, *(say(facts) for _, say in shown))
    return table


def _notes(entry: Facts) -> list[str]:
    notes = []
    if entry["step"]["operations"] is None:  # of a traced model, all but seconds is known
        held = f"its ops hold {_unit(entry['step']['held_bytes'], 'B')}"
        notes.append(f"not told by this graph: {', '.join(entry['missing'])}; {held}.")
    if entry["step"]["uncounted"]:
        notes.append(f"{entry['step']['uncounted']} ops (loops) are not counted: the figures are lower bounds.")
    if entry.get("parameters_unread"):
        notes.append(f"of the parameters, {entry['parameters_unread']:,} are never read by the step.")
    return notes


def _unit(number: float | None, unit: str = "") -> str:
    """Three digits and a prefix: 3.86 G."""
    if number is None:
        return "-"
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g} {prefix}{unit}"
    return f"{number:.3g} {unit}".strip()
