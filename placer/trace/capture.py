"""A training step captured once: its folded GraphDef, its variables, and the OpGraph that a search places."""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.errors import BadInputError, one_line
from placer.graph.merging import UnionFind
from placer.graph.op_counts import counts_of
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.trace.folding import READS as READS
from placer.trace.folding import RIDERS as RIDERS
from placer.trace.folding import fold
from placer.trace.function_bodies import bodies_of
from placer.trace.host_ops import behind_host, host_ops
from placer.trace.iterator_inputs import fed, redirect_element
from placer.trace.node_def import parse_input, redirected, set_inputs, source_of
from placer.trace.phases import op_phases
from placer.trace.signature import Layout, flat_tensors

RANDOM = frozenset(
    {"RandomUniform", "RandomStandardNormal", "TruncatedNormal", "RandomUniformInt", "Multinomial", "RandomShuffle"}
)


@dataclass(frozen=True)
class Captured:
    """One training step, traced, inlined, folded and pruned."""

    name: str
    concrete: Any
    graph_def: Any  # variables are VarHandleOp nodes, inputs and other captured tensors Placeholder nodes
    variables: dict[str, tf.Variable]  # node name -> the user's variable
    feeds: dict[str, Any]  # node name -> captured tensor that is not a variable
    input_names: tuple[str, ...]  # Placeholder node of each flat input
    output_names: tuple[str, ...]  # tensor ("node:0") of each flat output
    writes: tuple[str, ...]  # nodes that must run although no node reads them (variable updates)
    graph: OpGraph
    host_ops: frozenset[str] = frozenset()
    """Nodes, not in `graph`, that run in the coordinating process: iterators, tables, Python functions, prints."""

    @cached_property
    def nodes(self) -> dict[str, Any]:
        """Node name -> NodeDef."""
        return {node.name: node for node in self.graph_def.node}

    @cached_property
    def written(self) -> frozenset[str]:
        """The nodes of variables that the step may write: those whose handle goes to other ops than reads."""
        taken = (source_of(i) for node in self.graph_def.node if node.op not in READS for i in node.input)
        return frozenset(taken) & self.variables.keys()

    @property
    def is_random(self) -> bool:
        """Whether a step draws random numbers from TensorFlow's hidden state, so that no two steps are alike."""
        return any(node.op in RANDOM for node in self.graph_def.node)

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
        return self.concrete(*inputs)

    def pack(self, outputs: Sequence[Any]) -> Any:
        """Flat outputs in the structure that the step returned."""
        structure, left = self.concrete.structured_outputs, iter(outputs)
        leaves = tf.nest.flatten(structure, expand_composites=True)
        filled = [None if leaf is None else next(left) for leaf in leaves]
        return tf.nest.pack_sequence_as(structure, filled, expand_composites=True)


def capture(
    step: Any,
    args: Sequence[Any],
    name: str = "step",
    kwargs: Mapping[str, Any] | None = None,
    *,
    needs_loss: bool = True,
    trains: bool = True,
    elements: Mapping[int, Sequence[Any]] | None = None,
) -> Captured:
    """Trace `step` (a function, a tf.function, or a compiled keras.Model) as called with `args` and `kwargs`.

    Tensors and arrays in them are the step's inputs, everything else is a constant. needs_loss: require the step to
    return a floating-point tensor. trains: require it to update a variable; an inference updates none. elements:
    position of an iterator among the flat tensors -> the shapes of its element, which the captured step takes instead
    (placer/trace/iterator_inputs.py). Raises BadInputError where the step cannot be traced or placed, returns no such
    tensor, or updates no variable.
    """
    concrete = _trace(step, args, kwargs, name)
    variables, feeds = _captures(concrete)
    names = {inner.op.name for _, inner in concrete.graph.captures}
    inputs = tuple(t.op.name for t in concrete.inputs if t.op.name not in names)
    outputs = tuple(t.name for t in concrete.outputs)
    writes = _writes(concrete)
    if needs_loss and not any(t.dtype.is_floating for t in concrete.outputs):
        raise BadInputError(f"{name}: the step returns no floating-point tensor; return the loss.")
    if trains and not _updates(concrete, variables):
        raise BadInputError(f"{name}: the step updates no variable, so it trains nothing; apply gradients in it.")
    try:
        graph_def, writes = fold(_renamed(concrete), variables, inputs, outputs, writes)
    except (tf.errors.OpError, ValueError) as error:
        raise BadInputError(f"{name}: TensorFlow could not optimise the step's graph: {_gist(error)}") from error
    for i in sorted(elements or {}, reverse=True):
        graph_def, parts, taker = fed(graph_def, inputs[i], (elements or {})[i])
        inputs = (*inputs[:i], *parts, *inputs[i + 1 :])
        outputs = tuple(redirect_element(tensor, taker, parts) for tensor in outputs)
        writes = tuple(write for write in writes if write != taker)
    left = {node.name for node in graph_def.node}
    variables = {node: variable for node, variable in variables.items() if node in left}
    feeds = {node: tensor for node, tensor in feeds.items() if node in left}
    host = host_ops(name, graph_def)
    graph = build_graph(name, graph_def, variables, outputs, host)
    return Captured(name, concrete, graph_def, variables, feeds, inputs, outputs, writes, graph, host)


def untouchable(step: Any) -> str | None:
    """Why a step must not be placed, in words; None where it may.

    Looks at what the function closes over, the globals that it uses, and the attributes of the object that it is a
    method of, but not inside of those.
    """
    if tf.config.functions_run_eagerly():
        return "functions are set to run eagerly (tf.config.run_functions_eagerly)"
    if not tf.executing_eagerly():
        return "it is called while another function is traced"
    if tf.distribute.has_strategy():
        return f"it runs under the distribution strategy {type(tf.distribute.get_strategy()).__name__}"
    if hasattr(step, "compute_loss"):
        if getattr(step, "run_eagerly", False):
            return "the model was compiled with run_eagerly=True"
    elif getattr(step, "_jit_compile", None):
        return "it is compiled by XLA (jit_compile=True), which ignores devices"
    return next(filter(None, map(_distribution, _within(step))), None)


def _within(step: Any) -> list[Any]:
    """The objects that a step's function refers to."""
    if isinstance(step, functools.partial):
        return [*step.args, *step.keywords.values(), *_within(step.func)]
    function = inspect.unwrap(getattr(step, "python_function", step))
    owner = getattr(step, "__self__", None) or getattr(function, "__self__", None)
    found = [step, *getattr(owner, "__dict__", {}).values()]
    function = getattr(function, "__func__", function)
    if not inspect.isfunction(function):
        return [*found, *getattr(function, "__dict__", {}).values()]
    with contextlib.suppress(ValueError):  # a closure cell is empty
        used = inspect.getclosurevars(function)
        found += [*used.nonlocals.values(), *used.globals.values()]
    return [thing for thing in found if not inspect.ismodule(thing)]


def _distribution(thing: Any) -> str | None:
    """In words, that an object takes part in a distribution strategy; None where it does not."""
    if isinstance(thing, tf.distribute.Strategy):
        return f"it uses the distribution strategy {type(thing).__name__}"
    variables = thing if isinstance(thing, (list, tuple)) else [thing, *(_asked(thing, "variables") or ())]
    for variable in variables:
        for held in (variable, _asked(variable, "value")):  # Keras wraps TensorFlow's variable
            if isinstance(held, tf.distribute.DistributedValues):
                return f"its variables are distributed ({type(held).__name__})"
    return None


def _asked(thing: Any, name: str) -> Any:
    """An attribute of an arbitrary object, whose properties may raise anything; None where it has none."""
    try:
        found = None if isinstance(thing, type) else getattr(thing, name, None)
        return found if name == "value" or isinstance(found, (list, tuple)) else None
    except Exception:
        return None


def _trace(step: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, name: str) -> Any:
    traceable: Any = _model_step(step) if hasattr(step, "compute_loss") else step
    if not callable(traceable):
        raise BadInputError(f"{name}: a {type(step).__name__} is no training step; pass a function.")
    if getattr(traceable, "_jit_compile", None):  # XLA ignores devices
        warnings.warn(f"{name}: jit_compile is switched off, for XLA ignores devices.", stacklevel=3)
        traceable = traceable.python_function
    try:
        layout = Layout.of(args, kwargs)
        return tf.function(_flat_step(traceable, layout)).get_concrete_function(*layout.specs)
    except BadInputError as error:
        raise BadInputError(f"{name}: {error}") from error
    except Exception as error:
        raise BadInputError(
            f"{name}: TensorFlow could not trace the step: {type(error).__name__}: {_gist(error)}"
        ) from error


def _flat_step(step: Any, layout: Layout) -> Callable[..., Any]:
    """The step as a function of its flat tensors. A tf.function is unwrapped, which leaves less to inline."""
    inner = step
    if hasattr(step, "python_function") and getattr(step, "input_signature", None) is None:
        inner = step.python_function
        if not getattr(step, "_autograph", True):
            inner = tf.autograph.experimental.do_not_convert(inner)
    filled = tf.autograph.experimental.do_not_convert(layout.filled)

    def flat_step(*tensors: Any) -> Any:
        args, kwargs = filled(tensors)
        return inner(*args, **kwargs)

    return flat_step


def _gist(error: Exception) -> str:
    """An exception's message in one line, without the lines that AutoGraph puts before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return ""
    return one_line(lines[-1] if lines[0].startswith("in user code") else lines[0])


def _model_step(model: Any) -> Callable[..., Any]:
    """The training step of a compiled Keras model."""
    if getattr(model, "optimizer", None) is None:
        raise BadInputError(f"{model.name}: the model has no optimizer; call compile(optimizer=..., loss=...) first.")
    model.optimizer.build(model.trainable_variables)

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x=x, y=y, y_pred=model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    return step


def _captures(concrete: Any) -> tuple[dict[str, tf.Variable], dict[str, Any]]:
    by_handle = {id(tf_internals.handle_of(v)): v for v in concrete.graph.variables}
    names = _stable_names(concrete)
    variables, feeds = {}, {}
    for outer, inner in concrete.graph.captures:
        name = names.get(inner.op.name, inner.op.name)
        if id(outer) in by_handle:
            variables[name] = by_handle[id(outer)]
        else:
            feeds[name] = outer
    return variables, feeds


def _stable_names(concrete: Any) -> dict[str, str]:
    """Captures of a nested function are named by numbers that differ between processes: that name -> "captured_i" with
    the capture's position.
    """
    names = (inner.op.name for _, inner in concrete.graph.captures)
    return {name: f"captured_{i}" for i, name in enumerate(names) if name.isdigit()}


def _renamed(concrete: Any) -> Any:
    """The traced GraphDef with stable names of captures."""
    graph_def = concrete.graph.as_graph_def()
    names = _stable_names(concrete)
    for node in graph_def.node:
        node.name = names.get(node.name, node.name)
        set_inputs(node, [redirected(text, names) for text in node.input])
    return graph_def


def _writes(concrete: Any) -> tuple[str, ...]:
    """Ops with an effect on a variable, without the reads that TensorFlow also keeps in order."""
    return tuple(op.name for op in concrete.graph.control_outputs if op.type not in READS)


def _updates(concrete: Any, variables: Mapping[str, Any]) -> bool:
    """Whether an op with an effect takes the handle of a variable."""
    names = _stable_names(concrete)
    effects = (op for op in concrete.graph.control_outputs if op.type not in READS)
    return any(names.get(tensor.op.name, tensor.op.name) in variables for op in effects for tensor in op.inputs)


def build_graph(
    name: str,
    graph_def: Any,
    variables: dict[str, tf.Variable],
    outputs: Sequence[str],
    host: frozenset[str] = frozenset(),
) -> OpGraph:
    """The OpGraph of a folded GraphDef. Constants and inputs are left out because they are placed with their consumers.
    So are `host` ops, but waiting through them is kept as control edges.
    """
    with tf.Graph().as_default() as tf_graph:
        tf.graph_util.import_graph_def(graph_def, name="")
    placed = [node for node in graph_def.node if node.op not in RIDERS and node.name not in host]
    index = {node.name: i for i, node in enumerate(placed)}
    phases = op_phases(graph_def, outputs)
    colocate = _variable_units(graph_def, tf_graph)
    behind = behind_host(graph_def, host)
    bodies = bodies_of(graph_def)
    ops = []
    for node in placed:
        tf_op = tf_graph.get_operation_by_name(node.name)
        variable = variables.get(node.name)
        ops.append(
            Op(
                name=node.name,
                type=node.op,
                memory_bytes=0 if variable is None else tensor_bytes(variable.shape, variable.dtype),
                colocate=colocate.get(node.name),
                devices=tuple(sorted(tf_internals.kernel_kinds(node))) or ("cpu", "gpu"),
                phase=phases[node.name],
                shapes=tuple(_dims(t.shape) for t in tf_op.outputs),
                **counts_of(tf_op, bodies)._asdict(),
            )
        )
    return OpGraph(name, tuple(ops), tuple(_edges(placed, index, tf_graph, behind)))


def _edges(
    placed: Sequence[Any], index: dict[str, int], tf_graph: Any, behind: Mapping[str, Sequence[str]]
) -> list[Edge]:
    edges: dict[tuple[int, int, int], Edge] = {}
    for node in placed:
        through = [f"^{source}" for text in node.input for source in behind.get(source_of(text), ())]
        for i in [*node.input, *through]:
            source, output = parse_input(i)
            if source not in index:
                continue
            outputs = tf_graph.get_operation_by_name(source).outputs
            output = len(outputs) if output < 0 else output  # a control edge counts as a tensor of 0 bytes
            size = 0 if output == len(outputs) else tensor_bytes(outputs[output].shape, outputs[output].dtype)
            edge = Edge(index[source], index[node.name], size, output)
            edges.setdefault((edge.src, edge.dst, edge.output_index), edge)
    return list(edges.values())


def _variable_units(graph_def: Any, tf_graph: Any) -> dict[str, str]:
    """Node -> name of its unit: a variable's handle and every op that takes the handle."""
    units = UnionFind[str]()
    for node in graph_def.node:
        for source, output in (parse_input(i) for i in node.input):
            if output >= 0 and tf_graph.get_operation_by_name(source).outputs[output].dtype == tf.resource:
                units.join(source, node.name)
    return units.roots()


def tensor_bytes(shape: tf.TensorShape, dtype: tf.DType) -> int:
    """Bytes of a tensor; an unknown dimension counts as 1, strings and handles as nothing."""
    if dtype in (tf.resource, tf.variant, tf.string) or shape.rank is None:
        return 0
    count = 1
    for dim in shape.as_list():
        count *= 1 if dim is None else dim
    return int(count * dtype.size)


def _dims(shape: tf.TensorShape) -> tuple[int | None, ...] | None:
    return None if shape.rank is None else tuple(shape.as_list())
