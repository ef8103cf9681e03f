"""`placer spoc`: Size, Parameters, Operations and Critical datapath length of models and graph files, and a reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments import zoo
from experiments.jobs.spoc_reading import reading
from placer.errors import BadInputError, raise_last, tried
from placer.graph.graph_files import is_graph_file, read_graph
from placer.graph.op_graph import OpGraph
from surrogate.features.spoc import Spoc, forward, spoc

if TYPE_CHECKING:  # graph files are read without TensorFlow
    from placer.trace.capture import Captured

Facts = dict[str, Any]
DERIVED = ("parallelism", "breadth", "narrowness", "operations_per_op", "intensity", "weight_share")
MISSING = {
    "parameters": "parameters",
    "operations": "operations and multiply-adds",
    "span": "span",
    "chain_s": "seconds of the longest chain",
}


class Counted(NamedTuple):
    """The number of parameters of a step."""

    read: int  # elements of the model's variables in its graph
    unread: int = 0  # elements that it never reads, such as statistics of a normalisation that was not adapted

    @property
    def total(self) -> int:
        """All elements, as Keras's `count_params` counts them."""
        return self.read + self.unread


def spoc_command(models: Sequence[str], batch: int | None = None) -> tuple[list[Facts], list[Exception]]:
    """The facts that `placer spoc --json` prints for each model, and the errors of models that cannot be traced.

    Raises BadInputError before anything is traced, and the error itself if there is no other model.
    """
    if batch is not None and batch < 1:
        raise BadInputError(f"--batch is {batch}; give a number of examples >= 1.")
    found: list[Facts] = []
    failures = tried(*(partial(_add, found, facts) for facts in [_checked(model, batch) for model in models]))
    if not found:
        raise_last(failures)
    return found, failures


def _add(found: list[Facts], facts: Callable[[], Facts]) -> None:
    found.append(facts())


def _checked(model: str, batch: int | None) -> Callable[[], Facts]:
    """Read a file or find a model now, and return a function that makes its facts, which may trace it."""
    if is_graph_file(model):
        if batch is not None:
            raise BadInputError(f"--batch is {batch}, and {model} is a graph, whose batch is fixed; leave --batch out.")
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
    """SPOC of a graph, of its forward part if phases are known, and the reading. count: its number of parameters."""
    step, ahead = spoc(graph, count), forward(graph)
    first = None if ahead is None or len(ahead) == len(graph) else spoc(ahead, count)
    numbers = asdict(step)
    return {
        "model": model,
        "step": _facts(step),
        "forward": None if first is None else _facts(first),
        "missing": [name for key, name in MISSING.items() if numbers[key] is None],
        "reading": reading(step, first),
    }


def _facts(found: Spoc) -> Facts:
    return {**asdict(found), **{name: getattr(found, name) for name in DERIVED}}


def parameters(captured: Captured, model: Any = None) -> Counted:
    """Parameters of a captured step: the floating-point variables of its forward part.

    model: the keras.Model, which also has variables that the step never reads; None if it is not known.
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
