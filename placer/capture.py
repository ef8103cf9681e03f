"""A training step captured once: its folded GraphDef, its variables, and the OpGraph that a search places."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tensorflow as tf

from placer import internals
from placer.errors import BadInputError
from placer.flops import op_flops
from placer.graph import Edge, Op, OpGraph
from placer.nodedef import handle_node, parse_input, set_inputs, source_of
from placer.phases import op_phases

READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd"})
RANDOM = frozenset(
    {"RandomUniform", "RandomStandardNormal", "TruncatedNormal", "RandomUniformInt", "Multinomial", "RandomShuffle"}
)
RIDERS = frozenset({"Const", "Placeholder"})  # they go wherever their consumers are, so nobody places them


@dataclass(frozen=True)
class Captured:
    """One training step, traced, inlined, folded and pruned.

    graph_def: variables are VarHandleOp nodes, inputs and other captured tensors Placeholder nodes.
    variables: node name -> the caller's variable. feeds: node name -> captured tensor that is no variable.
    input_names: Placeholder node of each flat input; output_names: tensor ("node:0") of each flat output.
    writes: nodes that must run although nobody reads them (variable updates).
    """

    name: str
    concrete: Any
    graph_def: Any
    variables: dict[str, tf.Variable]
    feeds: dict[str, Any]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    writes: tuple[str, ...]
    graph: OpGraph

    @cached_property
    def nodes(self) -> dict[str, Any]:
        """Node name -> NodeDef."""
        return {node.name: node for node in self.graph_def.node}

    @property
    def is_random(self) -> bool:
        """Whether a step draws random numbers from TensorFlow's hidden state: no two steps are then alike."""
        return any(node.op in RANDOM for node in self.graph_def.node)

    def flat_inputs(self, args: Sequence[Any]) -> list[Any]:
        """The tensors of `args`, in the order of `input_names`."""
        return [tf.convert_to_tensor(a) for a in tf.nest.flatten(list(args), expand_composites=True)]

    def call(self, inputs: Sequence[Any]) -> Any:
        """The step as TensorFlow runs it untouched, on flat inputs."""
        arguments = dict(zip(self.input_names, inputs, strict=True))
        flat = [arguments[t.op.name] for t in self.concrete.inputs if t.op.name in arguments]
        args, kwargs = tf.nest.pack_sequence_as(self.concrete.structured_input_signature, flat, expand_composites=True)
        return self.concrete(*args, **kwargs)

    def pack(self, outputs: Sequence[Any]) -> Any:
        """Flat outputs in the structure that the step returned."""
        return tf.nest.pack_sequence_as(self.concrete.structured_outputs, list(outputs), expand_composites=True)


def capture(step: Any, example_inputs: Sequence[Any], name: str = "step") -> Captured:
    """Trace `step` (a function, a tf.function, or a compiled keras.Model) on `example_inputs`.

    Raises BadInputError where the step cannot be traced, returns no floating-point tensor, or updates no variable.
    """
    concrete = _trace(step, example_inputs, name)
    variables, feeds = _captures(concrete)
    inputs = tuple(t.op.name for t in concrete.inputs if t.op.name not in variables and t.op.name not in feeds)
    outputs = tuple(t.name for t in concrete.outputs)
    writes = _writes(concrete)
    if not any(t.dtype.is_floating for t in concrete.outputs):
        raise BadInputError(f"{name}: the step returns no floating-point tensor; return the loss.")
    if not writes:
        raise BadInputError(f"{name}: the step updates no variable, so it trains nothing; apply gradients in it.")
    graph_def = _with_handles(concrete.graph.as_graph_def(), variables)
    _keep_control_flow_whole(graph_def)
    bodies = list(graph_def.library.function)
    graph_def = internals.optimize_graph(graph_def, [*outputs, *writes, *inputs])
    _keep_bodies(graph_def, bodies)
    _drop_places(graph_def)
    _drop_idle_control(graph_def, outputs)
    _read_once(graph_def)
    left = {node.name for node in graph_def.node}
    writes = tuple(write for write in writes if write in left)
    graph = build_graph(name, graph_def, variables, outputs)
    return Captured(name, concrete, graph_def, variables, feeds, inputs, outputs, writes, graph)


def _trace(step: Any, example_inputs: Sequence[Any], name: str) -> Any:
    traceable: Any = _model_step(step) if hasattr(step, "compute_loss") else step
    if getattr(traceable, "_jit_compile", None):  # XLA ignores devices
        warnings.warn(f"{name}: jit_compile is switched off, for XLA ignores devices.", stacklevel=3)
        traceable = traceable.python_function
    if not hasattr(traceable, "get_concrete_function"):
        if not callable(traceable):
            raise BadInputError(f"{name}: a {type(step).__name__} is no training step; pass a function.")
        traceable = tf.function(traceable)
    try:
        return traceable.get_concrete_function(*example_inputs)
    except Exception as error:
        line = str(error).strip().splitlines()[0] if str(error).strip() else ""
        raise BadInputError(f"{name}: TensorFlow could not trace the step: {type(error).__name__}: {line}") from error


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
    by_handle = {id(v.handle): v for v in concrete.graph.variables}
    variables, feeds = {}, {}
    for outer, inner in concrete.graph.captures:
        if id(outer) in by_handle:
            variables[inner.op.name] = by_handle[id(outer)]
        else:
            feeds[inner.op.name] = outer
    return variables, feeds


def _writes(concrete: Any) -> tuple[str, ...]:
    """Ops with an effect on a variable; mere reads, which TensorFlow also keeps in order, may go."""
    return tuple(op.name for op in concrete.graph.control_outputs if op.type not in READS)


def _with_handles(graph_def: Any, variables: dict[str, tf.Variable]) -> Any:
    """Captured handles as VarHandleOps, whose shapes are known, so that shape arithmetic folds away."""
    for node in graph_def.node:
        name, variable = node.name, variables.get(node.name)
        if variable is not None:
            node.Clear()
            node.CopyFrom(handle_node(name, variable, name))
    return graph_def


def _keep_bodies(graph_def: Any, bodies: Sequence[Any]) -> None:
    """Bodies of loops and branches as TensorFlow already knows them: under one name it takes one definition."""
    known = {body.signature.name: body for body in bodies}
    for function in graph_def.library.function:
        if function.signature.name in known:
            function.CopyFrom(known[function.signature.name])


def _drop_places(graph_def: Any) -> None:
    """Devices and colocation of the caller's scopes, and those that inlining a function leaves, give way to ours."""
    for node in graph_def.node:
        node.device = ""
        node.attr.pop("_class", None)


def _drop_idle_control(graph_def: Any, outputs: Sequence[str]) -> None:
    """Drop control edges that order nothing: each would be a transfer where it crosses devices.

    Constants, inputs and handles are there from the start. Returned tensors wait for every update, but the placed
    function names its updates as control outputs, so they run all the same.
    """
    idle = {node.name for node in graph_def.node if node.op in RIDERS or node.op == "VarHandleOp"}
    unordered = {tensor.split(":")[0] for tensor in outputs} | idle
    for node in graph_def.node:
        controls = [i for i in node.input if i.startswith("^")]
        if controls:
            kept = [] if node.name in unordered else [c for c in controls if c[1:] not in idle]
            inputs = [i for i in node.input if not i.startswith("^")]
            set_inputs(node, [*inputs, *kept])


def _read_once(graph_def: Any) -> None:
    """Reads of one variable that wait for the same ops read the same value: keep the first of them."""
    first: dict[tuple[str, ...], str] = {}
    twin: dict[str, str] = {}
    for node in graph_def.node:
        if node.op == "ReadVariableOp":
            twin[node.name] = first.setdefault((node.input[0], *sorted(node.input[1:])), node.name)
    twin = {name: kept for name, kept in twin.items() if name != kept}
    nodes = [node for node in graph_def.node if node.name not in twin]
    for node in nodes:
        inputs = [_redirected(text, twin) for text in node.input]
        data = [text for text in inputs if not text.startswith("^")]
        set_inputs(node, [*data, *dict.fromkeys(text for text in inputs if text.startswith("^"))])
    kept = tf.compat.v1.GraphDef(node=nodes).node
    del graph_def.node[:]
    graph_def.node.extend(kept)


def _redirected(text: str, twin: dict[str, str]) -> str:
    """An input text with its source replaced by the twin that is kept."""
    source = source_of(text)
    return text.replace(source, twin[source], 1) if source in twin else text


def _keep_control_flow_whole(graph_def: Any) -> None:
    """While and If run as one op on one device instead of being taken apart when the function is made ready."""
    for node in graph_def.node:
        node.attr.pop("_lower_using_switch_merge", None)


def build_graph(name: str, graph_def: Any, variables: dict[str, tf.Variable], outputs: Sequence[str]) -> OpGraph:
    """The OpGraph of a folded GraphDef. Constants and inputs are left out: they ride with their consumers."""
    with tf.Graph().as_default() as tf_graph:
        tf.graph_util.import_graph_def(graph_def, name="")
    placed = [node for node in graph_def.node if node.op not in RIDERS]
    index = {node.name: i for i, node in enumerate(placed)}
    phases = op_phases(graph_def, outputs)
    colocate = _resource_classes(graph_def, tf_graph)
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
                devices=tuple(sorted(internals.kernel_kinds(node.op))) or ("cpu", "gpu"),
                phase=phases[node.name],
                flops=op_flops(tf_op),
                shapes=tuple(_dims(t.shape) for t in tf_op.outputs),
            )
        )
    return OpGraph(name, tuple(ops), tuple(_edges(placed, index, tf_graph)))


def _edges(placed: Sequence[Any], index: dict[str, int], tf_graph: Any) -> list[Edge]:
    edges: dict[tuple[int, int, int], Edge] = {}
    for node in placed:
        for i in node.input:
            source, output = parse_input(i)
            if source not in index:
                continue
            outputs = tf_graph.get_operation_by_name(source).outputs
            output = len(outputs) if output < 0 else output  # a control edge: a tensor of its own, without bytes
            size = 0 if output == len(outputs) else tensor_bytes(outputs[output].shape, outputs[output].dtype)
            edge = Edge(index[source], index[node.name], size, output)
            edges.setdefault((edge.src, edge.dst, edge.output_index), edge)
    return list(edges.values())


def _resource_classes(graph_def: Any, tf_graph: Any) -> dict[str, str]:
    """Node -> name of its colocation class: a variable's handle and every op that touches the handle."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for node in graph_def.node:
        for source, output in (parse_input(i) for i in node.input):
            if output >= 0 and tf_graph.get_operation_by_name(source).outputs[output].dtype == tf.resource:
                parent[root(node.name)] = root(source)
    return {name: root(name) for name in list(parent)}


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
