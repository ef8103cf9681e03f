"""A training step captured once: its folded GraphDef, its variables, and the OpGraph that a search places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from placer import tf_internals
from placer.errors import BadInputError, short
from placer.graph.op_graph import OpGraph
from placer.trace.build_graph import build_graph
from placer.trace.effects import is_unordered
from placer.trace.graph_def.access_order import READS, AccessOrder
from placer.trace.graph_def.content import content_of
from placer.trace.graph_def.folding import fold
from placer.trace.graph_def.node_def import nodes_within, redirected, set_inputs, source_of
from placer.trace.handle_owners import owners
from placer.trace.host_ops import host_ops
from placer.trace.iterator_inputs import fed, redirect_element
from placer.trace.keras_ties import Tied
from placer.trace.random_streams import DRAWS, Draws, draws_within, give_seeds, make_stateless, repeating_draws
from placer.trace.signature import Layout, flat_tensors
from placer.trace.tracing import gist, given_to, layout_of, trace
from placer.trace.variable_parts import VariableParts

# With TensorFlow 1's control flow, the ops of a branch that is not taken are dead, and so is every op that waits for
# them. Ops in a run order wait for each other, so that one dead op would stop all that come later.
OLD_CONTROL_FLOW = frozenset({"Switch", "RefSwitch", "Merge", "RefMerge", "Enter", "RefEnter"})
TRAINS_NOTHING = "the step updates no variable, so it trains nothing; apply gradients in it"


@dataclass(frozen=True)
class Traced:
    """A traced step before folding: its concrete function, and names of nodes in the function's graph."""

    concrete: Any
    captures: dict[str, Any]  # node name -> captured tensor, in the order in which the function takes them
    inputs: tuple[str, ...]  # nodes, in the order in which the function takes them
    order: tuple[int, ...]  # for each input, which flat tensor of a call it is
    outputs: tuple[str, ...]
    writes: tuple[str, ...]
    seeded: Any  # the traced GraphDef with the seeds of `Captured.graph_def`; None if the step draws no random numbers

    @property
    def given(self) -> tuple[str, ...]:
        """The inputs in the order of a call's flat tensors."""
        return tuple(self.inputs[self.order.index(i)] for i in range(len(self.order)))

    def ordered(self, tensors: Sequence[Any]) -> list[Any]:
        """A call's flat tensors in the order of `inputs`."""
        return [tensors[i] for i in self.order]

    def call(self, tensors: Sequence[Any], captured: Sequence[Any] | None = None) -> Any:
        """Run the function on a call's flat tensors. captured: tensors to use instead of its captures."""
        return tf_internals.calls.call_concrete(self.concrete, self.ordered(tensors), captured)


@dataclass(frozen=True)
class Captured:
    """One training step, traced, inlined, folded and pruned."""

    name: str
    graph_def: Any  # variables are VarHandleOp nodes, inputs and other captured tensors Placeholder nodes
    variables: dict[str, tf.Variable]  # node name -> the user's variable; a part's tf.TensorSpec if it is divided
    feeds: dict[str, Any]  # node name -> captured tensor that is not a variable
    input_names: tuple[str, ...]  # Placeholder node of each flat input
    output_names: tuple[str, ...]  # tensor ("node:0") of each flat output
    writes: tuple[str, ...]  # nodes that must run although no node reads them (variable updates)
    graph: OpGraph
    traced: Traced
    host_ops: frozenset[str] = frozenset()
    """Nodes, not in `graph`, that run in the coordinating process: iterators, tables, Python functions, prints."""
    draws: bool = False  # whether `graph_def` has the input DRAWS
    repeats: str | None = None  # why random numbers would repeat if the step were built again; None: they would not
    drawn: Draws = field(default_factory=Draws)  # the draws of all steps of a training, under any mapping
    undivided: Captured | None = None
    """The step before its ops were divided (placer/splits), with the same `traced`; None if no op is divided."""
    divided: Mapping[str, VariableParts] = field(default_factory=dict)  # variable of `undivided` -> its parts
    with_whole_statistics: Callable[[], Captured] | None = None
    """Set if parts of a batch normalise by their own statistics: divides the step by the same plan, but normalises by
    statistics of the whole batch.
    """

    @property
    def whole(self) -> Captured:
        """The step whose ops and variables are whole."""
        return self.undivided or self

    def joined(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Turn values of `variables` into values of the variables of `whole`: parts are concatenated."""
        found = {name: value for name, value in values.items() if name in self.whole.variables}
        for name, parts in self.divided.items():
            found[name] = np.concatenate([values[part] for part in parts.nodes], parts.axis)
        return found

    @cached_property
    def nodes(self) -> dict[str, Any]:
        """Node name -> NodeDef."""
        return {node.name: node for node in self.graph_def.node}

    @cached_property
    def written(self) -> frozenset[str]:
        """The nodes of variables that the step may write: those whose handle goes to an op other than a read."""
        taken = (source_of(i) for node in self.graph_def.node if node.op not in READS for i in node.input)
        return frozenset(taken) & self.variables.keys()

    @cached_property
    def has_loose_check(self) -> bool:
        """Whether nothing orders some check and some write (`AccessOrder.has_loose_check`)."""
        return AccessOrder(self.graph_def).has_loose_check()

    @property
    def arguments(self) -> tuple[str, ...]:
        """The nodes to which a call gives values: inputs, the number of draws if steps draw, captures, variables."""
        return (*self.input_names, *([DRAWS] if self.draws else ()), *self.feeds, *self.variables)

    @cached_property
    def is_random(self) -> bool:
        """Whether a step draws random numbers that cannot be repeated, so that no two steps are alike."""
        return bool(draws_within(self.graph_def))

    @cached_property
    def is_ordered(self) -> bool:
        """Whether two runs of the step on one device give the same bits. They do not if several threads scatter rows
        into a variable, because the order in which the rows arrive decides the rounding.
        """
        return not any(is_unordered(node) for node in nodes_within(self.graph_def))

    @property
    def has_tables(self) -> bool:
        """Whether a step uses lookup tables. When workers are joined, TensorFlow 2.21 drops all tables that are not
        anonymous, and then the untouched step fails too.
        """
        return any(self.nodes[name].op.startswith("LookupTable") for name in self.host_ops)

    def flat_inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
        """The tensors of a call, in the order of `input_names`."""
        return flat_tensors(args, kwargs)

    def call(self, inputs: Sequence[Any]) -> Any:
        """Run the untouched step on flat inputs."""
        return self.traced.call(inputs)

    def pack(self, outputs: Sequence[Any]) -> Any:
        """Flat outputs in the structure that the step returned, with what Keras had tied to them."""
        structure, there = self._returned
        if isinstance(structure, tf.Tensor):  # a loss alone needs no packing, and this runs after each step
            return outputs[0]
        left = iter(outputs)
        leaves = [next(left) if t else None for t in there]
        found = tf.nest.pack_sequence_as(structure, leaves, expand_composites=True)
        return found.tie() if isinstance(found, Tied) else found

    @cached_property
    def _returned(self) -> tuple[Any, list[bool]]:
        """The structure that the step returned when it was traced, and which of its leaves are tensors."""
        structure = self.traced.concrete.structured_outputs
        return structure, [leaf is not None for leaf in tf.nest.flatten(structure, expand_composites=True)]


def capture(
    step: Any,
    args: Sequence[Any],
    name: str = "step",
    kwargs: Mapping[str, Any] | None = None,
    *,
    needs_loss: bool = True,
    trains: bool = True,
    elements: Mapping[int, Sequence[Any]] | None = None,
    layout: Layout | None = None,
    traced: tuple[Any, list[int]] | None = None,
) -> Captured:
    """Trace `step` (a function, a tf.function, or a compiled keras.Model) as called with `args` and `kwargs`.

    Tensors and arrays in the arguments are the step's inputs, everything else is a constant. needs_loss: require the
    step to return a floating-point tensor. trains: require it to update a variable; an inference updates none.
    elements: position of an iterator among the flat tensors -> the shapes of its element, which the captured step
    takes instead (placer/trace/iterator_inputs.py). layout: the layout of the arguments, if it is known. traced: what
    `trace` returned for this step before; the step is then not traced again. Raises BadInputError if the step cannot
    be traced or placed, returns no floating-point tensor, or updates no variable.
    """
    layout = layout or layout_of(args, kwargs, name)
    concrete, order = traced if traced is not None else trace(step, layout, name)
    names = _stable_names(concrete, order)
    variables, feeds = _captures(concrete, names, name)
    _check_step(name, concrete, names, variables, needs_loss=needs_loss, trains=trains)
    graph_def = _renamed(concrete, names)
    repeats = repeating_draws(graph_def)  # before each draw has a seed
    give_seeds(graph_def)
    function = _traced(concrete, graph_def, names, order)  # with seeds, but still with the shapes of the trace
    _give_shapes(graph_def, {name: layout.specs[i] for name, i in zip(function.inputs, order, strict=True)})
    folded = _folded(name, graph_def, variables, function)
    content = content_of(folded.graph_def)  # before draws are given constants, which differ from capture to capture
    folded = _with_elements(folded, elements or {})
    draws = make_stateless(folded.graph_def)
    _check_order(name, folded.graph_def)
    left = {node.name for node in folded.graph_def.node}
    variables = {node: variable for node, variable in variables.items() if node in left}
    host = host_ops(name, folded.graph_def)
    return Captured(
        name=name,
        graph_def=folded.graph_def,
        variables=variables,
        feeds={node: tensor for node, tensor in feeds.items() if node in left},
        input_names=folded.inputs,
        output_names=folded.outputs,
        writes=folded.writes,
        graph=build_graph(name, folded.graph_def, variables, folded.outputs, host, content),
        traced=function,
        host_ops=host,
        draws=draws,
        repeats=repeats,
    )


class Folded(NamedTuple):
    """A folded GraphDef, and the names of its inputs, outputs and writes, as in `Captured`."""

    graph_def: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    writes: tuple[str, ...]


def _check_step(
    step: str, concrete: Any, names: Mapping[str, str], variables: Mapping[str, Any], *, needs_loss: bool, trains: bool
) -> None:
    """Raise BadInputError if the shape of a variable may change, no loss is returned, or no variable is updated."""
    if (loose := next((v for v in variables.values() if not v.shape.is_fully_defined()), None)) is not None:
        raise BadInputError(f"{step}: its variable {short(loose.name)} has a shape that may change, {loose.shape}.")
    if needs_loss and not any(t.dtype.is_floating for t in concrete.outputs):
        raise BadInputError(f"{step}: the step returns no floating-point tensor; return the loss.")
    if trains and not _updates(concrete, names, variables):
        raise BadInputError(f"{step}: {TRAINS_NOTHING}.")


def _folded(step: str, graph_def: Any, variables: dict[str, tf.Variable], function: Traced) -> Folded:
    """Fold `graph_def`, the graph of `function` with the shapes of the call.

    Raises BadInputError if it cannot be folded, or has control flow of TensorFlow 1.
    """
    try:
        graph_def, writes = fold(graph_def, variables, function.given, function.outputs, function.writes)
    except (tf.errors.OpError, ValueError) as error:
        raise BadInputError(f"{step}: TensorFlow could not optimise the step's graph: {gist(error)}") from error
    if (old := next((node for node in graph_def.node if node.op in OLD_CONTROL_FLOW), None)) is not None:
        raise BadInputError(f"{step}: it has branches or loops of TensorFlow 1 (op {short(old.name)}, {old.op}).")
    return Folded(graph_def, function.given, function.outputs, writes)


def _with_elements(folded: Folded, elements: Mapping[int, Sequence[Any]]) -> Folded:
    """Replace the iterators among the inputs by their elements. elements: as in `capture`."""
    graph_def, inputs, outputs, writes = folded
    for i in sorted(elements, reverse=True):
        graph_def, parts, taker = fed(graph_def, inputs[i], elements[i])
        inputs = (*inputs[:i], *parts, *inputs[i + 1 :])
        outputs = tuple(redirect_element(tensor, taker, parts) for tensor in outputs)
        writes = tuple(write for write in writes if write != taker)
    return Folded(graph_def, inputs, outputs, writes)


def _check_order(step: str, graph_def: Any) -> None:
    """Raise BadInputError if nothing orders two ops that use one variable. TensorFlow orders those of a tf.function."""
    if (pair := AccessOrder(graph_def).first_open()) is not None:
        first, second = map(short, pair)
        raise BadInputError(f"{step}: nothing orders {first} and {second}, which use one variable.")


def _traced(concrete: Any, graph_def: Any, names: Mapping[str, str], order: Sequence[int]) -> Traced:
    """Return the `Traced` of a concrete function.

    graph_def: its graph, with stable names and seeds. order: which flat tensor of a call each input is.
    """
    return Traced(
        concrete=concrete,
        captures={names.get(inner.op.name, inner.op.name): outer for outer, inner in concrete.graph.captures},
        inputs=tuple(names[name] for name in given_to(concrete)),
        order=tuple(order),
        outputs=tuple(redirected(t.name, names) for t in concrete.outputs),
        writes=_writes(concrete),
        seeded=type(graph_def).FromString(graph_def.SerializeToString()) if draws_within(graph_def) else None,
    )


def _captures(concrete: Any, names: Mapping[str, str], step: str) -> tuple[dict[str, tf.Variable], dict[str, Any]]:
    try:
        by_handle = owners(concrete)
    except BadInputError as error:
        raise BadInputError(f"{step}: {error}") from error
    variables, feeds = {}, {}
    for outer, inner in concrete.graph.captures:
        name = names.get(inner.op.name, inner.op.name)
        variable = by_handle.get(id(outer))
        if variable is None:
            feeds[name] = outer
        else:
            variables[name] = variable
    return variables, feeds


def _stable_names(concrete: Any, order: Sequence[int]) -> dict[str, str]:
    """Name of an input's or a capture's node -> the name that it has in every trace of the step.

    The ops that cut a divided input are named after the input, and TensorFlow names only the inputs of a tf.function
    after its parameters. It names the captures of a nested function by numbers that differ between processes. order:
    which flat tensor of a call each input is.
    """
    captured = [inner.op.name for _, inner in concrete.graph.captures]
    names = {name: f"captured_{i}" for i, name in enumerate(captured) if name.isdigit()}
    return names | {name: f"placer/input_{i}" for name, i in zip(given_to(concrete), order, strict=True)}


def _renamed(concrete: Any, names: Mapping[str, str]) -> Any:
    """The traced GraphDef with stable names of inputs and captures."""
    graph_def = concrete.graph.as_graph_def()
    for node in graph_def.node:
        node.name = names.get(node.name, node.name)
        set_inputs(node, [redirected(text, names) for text in node.input])
    return graph_def


def _give_shapes(graph_def: Any, specs: Mapping[str, Any]) -> None:
    """Give inputs the shapes of the call, which costs and splits need; a trace by `input_signature` may lack them."""
    for node in graph_def.node:
        spec = specs.get(node.name)
        if spec is not None and node.op == "Placeholder":
            traced = tf.TensorShape(node.attr["shape"].shape)
            node.attr["shape"].shape.CopyFrom(traced.merge_with(spec.shape).as_proto())


def _writes(concrete: Any) -> tuple[str, ...]:
    """Ops with an effect on a variable, without the reads that TensorFlow also keeps in order."""
    return tuple(op.name for op in concrete.graph.control_outputs if op.type not in READS)


def trains_nothing(concrete: Any) -> bool:
    """Whether a step's concrete function updates no variable. Raises BadInputError if a variable cannot be found."""
    by_handle = owners(concrete)
    variables = {inner.op.name: by_handle.get(id(outer)) for outer, inner in concrete.graph.captures}
    held = {name: variable for name, variable in variables.items() if variable is not None}
    return not _updates(concrete, {}, held)


def _updates(concrete: Any, names: Mapping[str, str], variables: Mapping[str, Any]) -> bool:
    """Whether an op with an effect takes the handle of a variable."""
    effects = (op for op in concrete.graph.control_outputs if op.type not in READS)
    return any(names.get(tensor.op.name, tensor.op.name) in variables for op in effects for tensor in op.inputs)
