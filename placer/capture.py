"""A training step captured once: its folded GraphDef, its variables, and the OpGraph that a search places."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tensorflow as tf

from placer import internals
from placer.errors import BadInputError, one_line, short
from placer.flops import op_flops
from placer.graph import Edge, Op, OpGraph
from placer.nodedef import handle_node, parse_input, set_inputs, source_of
from placer.phases import op_phases
from placer.signature import Layout, flat_tensors

READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd"})
RANDOM = frozenset(
    {"RandomUniform", "RandomStandardNormal", "TruncatedNormal", "RandomUniformInt", "Multinomial", "RandomShuffle"}
)
RIDERS = frozenset({"Const", "Placeholder"})  # they go wherever their consumers are, so nobody places them

HOST_TYPES = frozenset(
    {"PyFunc", "PyFuncStateless", "EagerPyFunc", "Print", "PrintV2", "HashTableV2", "MutableHashTableV2"}
    | {"MutableHashTableOfTensorsV2", "MutableDenseHashTableV2", "AnonymousHashTable", "AnonymousMutableHashTable"}
    | {"Iterator", "IteratorV2", "AnonymousIterator", "AnonymousIteratorV2", "AnonymousIteratorV3", "OneShotIterator"}
)  # they need Python, its output, or a resource that they make for others
TIED_TYPES = ("Collective", "Horovod", "Nccl", "TPU", "Xla")


@dataclass(frozen=True)
class Captured:
    """One training step, traced, inlined, folded and pruned.

    graph_def: variables are VarHandleOp nodes, inputs and other captured tensors Placeholder nodes.
    variables: node name -> the caller's variable. feeds: node name -> captured tensor that is no variable.
    input_names: Placeholder node of each flat input; output_names: tensor ("node:0") of each flat output.
    writes: nodes that must run although nobody reads them (variable updates). host_ops: nodes that run in the
    coordinating process whatever the mapping (iterators, tables, Python functions, prints); no ops of `graph`.
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
    host_ops: frozenset[str] = frozenset()

    @cached_property
    def nodes(self) -> dict[str, Any]:
        """Node name -> NodeDef."""
        return {node.name: node for node in self.graph_def.node}

    @property
    def is_random(self) -> bool:
        """Whether a step draws random numbers from TensorFlow's hidden state: no two steps are then alike."""
        return any(node.op in RANDOM for node in self.graph_def.node)

    def flat_inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
        """The tensors of a call, in the order of `input_names`."""
        return flat_tensors(args, kwargs)

    def call(self, inputs: Sequence[Any]) -> Any:
        """The step as TensorFlow runs it untouched, on flat inputs."""
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
) -> Captured:
    """Trace `step` (a function, a tf.function, or a compiled keras.Model) as called with `args` and `kwargs`.

    Tensors and arrays in them are the step's inputs, everything else is a constant. needs_loss: whether a
    floating-point tensor must come back. Raises BadInputError where the step cannot be traced or placed, returns no
    such tensor, or updates no variable.
    """
    concrete = _trace(step, args, kwargs, name)
    variables, feeds = _captures(concrete)
    inputs = tuple(t.op.name for t in concrete.inputs if t.op.name not in variables and t.op.name not in feeds)
    outputs = tuple(t.name for t in concrete.outputs)
    writes = _writes(concrete)
    if needs_loss and not any(t.dtype.is_floating for t in concrete.outputs):
        raise BadInputError(f"{name}: the step returns no floating-point tensor; return the loss.")
    if not _updates(concrete, variables):
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
    host = host_ops(name, graph_def)
    graph = build_graph(name, graph_def, variables, outputs, host)
    return Captured(name, concrete, graph_def, variables, feeds, inputs, outputs, writes, graph, host)


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
    """The step as a function of its flat tensors. A tf.function is traced as the function in it: less to inline."""
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
    """What an exception says in one line; AutoGraph puts its own lines before."""
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


def _updates(concrete: Any, variables: Mapping[str, Any]) -> bool:
    """Whether an op with an effect takes the handle of a variable."""
    effects = (op for op in concrete.graph.control_outputs if op.type not in READS)
    return any(t.op.name in variables for op in effects for t in op.inputs)


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


def host_ops(name: str, graph_def: Any) -> frozenset[str]:
    """The nodes that have to run in the coordinating process: Python's own, and all that touch a resource that is no
    variable, for it lives there.

    Raises BadInputError where such an op takes a variable, too, which may have moved, or can run nowhere but where
    the caller put it.
    """
    python = _functions_with(graph_def, HOST_TYPES)
    with tf.Graph().as_default() as tf_graph:
        tf.graph_util.import_graph_def(graph_def, name="")
    host: set[str] = set()
    for op in _in_order(tf_graph):
        if op.type.startswith(TIED_TYPES):
            raise BadInputError(f"{name}: op {short(op.name)} ({op.type}) belongs where it is; it cannot be placed.")
        if op.type in HOST_TYPES or python & set(_called(op.node_def)) or _takes_host_resource(op, host):
            host.add(op.name)
            taken = [t.op.name for t in op.inputs if t.op.type == "VarHandleOp"]
            if taken:
                raise BadInputError(
                    f"{name}: op {short(op.name)} ({op.type}) takes the variable {short(taken[0])} along with an iterator, "
                    "a table or a Python function, so it cannot be placed; take those out of its loop or branch."
                )
    return frozenset(host)


def _in_order(tf_graph: Any) -> list[Any]:
    """The ops of an acyclic graph, inputs first."""
    done: dict[Any, None] = {}
    stack = list(tf_graph.get_operations())
    while stack:
        left = [t.op for t in stack[-1].inputs if t.op not in done]
        if left and stack[-1] not in done:
            stack += left
        else:
            done.setdefault(stack.pop())
    return list(done)


def _takes_host_resource(op: Any, host: set[str]) -> bool:
    """Whether an input is a handle of an iterator, table or dataset: from outside, or made by a host op."""
    return any(
        t.dtype in (tf.resource, tf.variant) and (t.op.type == "Placeholder" or t.op.name in host) for t in op.inputs
    )


def _called(node: Any) -> Iterator[str]:
    """The functions that a node calls."""
    for value in node.attr.values():
        yield from (f.name for f in (value.func, *value.list.func) if f.name)


def _functions_with(graph_def: Any, types: frozenset[str]) -> set[str]:
    """Functions of the library that hold an op of such a type, or call one that does."""
    found: set[str] = set()
    functions = graph_def.library.function
    before = -1
    while len(found) > before:
        before = len(found)
        for function in functions:
            if any(node.op in types or found & {node.op, *_called(node)} for node in function.node_def):
                found.add(function.signature.name)
    return found


def build_graph(
    name: str,
    graph_def: Any,
    variables: dict[str, tf.Variable],
    outputs: Sequence[str],
    host: frozenset[str] = frozenset(),
) -> OpGraph:
    """The OpGraph of a folded GraphDef. Constants and inputs are left out: they ride with their consumers; so are
    `host` ops, but what they make wait is kept, as control edges.
    """
    with tf.Graph().as_default() as tf_graph:
        tf.graph_util.import_graph_def(graph_def, name="")
    placed = [node for node in graph_def.node if node.op not in RIDERS and node.name not in host]
    index = {node.name: i for i, node in enumerate(placed)}
    phases = op_phases(graph_def, outputs)
    colocate = _resource_classes(graph_def, tf_graph)
    behind = _behind_host(graph_def, host)
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
    return OpGraph(name, tuple(ops), tuple(_edges(placed, index, tf_graph, behind)))


def _behind_host(graph_def: Any, host: frozenset[str]) -> dict[str, list[str]]:
    """Host op -> the placed ops (and riders) whose outcome it waits for, through other host ops or directly."""
    inputs = {node.name: [source_of(text) for text in node.input] for node in graph_def.node}
    behind = {}
    for name in host:
        seen, stack = {name: None}, [name]
        while stack:
            for source in inputs[stack.pop()]:
                if source not in seen:
                    seen[source] = None
                    stack += [source] if source in host else []
        behind[name] = [source for source in seen if source not in host]
    return behind


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
