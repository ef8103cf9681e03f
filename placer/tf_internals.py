"""All calls of TensorFlow's private API, for the releases that placer/tf_version.py names.

docs/decisions/001-function-defs.md says why each is needed and what it saves; a new TensorFlow has to pass
tests/placer/test_tf_internals.py. tests/placer/test_private_names.py lists the few private names that stand elsewhere.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from types import FrameType, FunctionType
from typing import Any

import numpy as np
import tensorflow as tf

from placer.tf_version import check_version

check_version(tf.__version__)  # another release may lack what is imported next

# ruff: noqa: E402
from tensorflow.core.framework import function_pb2
from tensorflow.core.protobuf import device_properties_pb2, meta_graph_pb2
from tensorflow.python import pywrap_tfe
from tensorflow.python.autograph.impl import api as autograph_api
from tensorflow.python.autograph.operators import control_flow, py_builtins
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.data.ops import (
    batch_op,
    cache_op,
    padded_batch_op,
    ragged_batch_op,
    random_op,
    shuffle_op,
    structured_function,
)
from tensorflow.python.eager import context as eager_context
from tensorflow.python.eager import execute as eager_execute
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework import config as framework_config
from tensorflow.python.framework import func_graph as framework_func_graph
from tensorflow.python.framework import function_def_to_graph, kernels, op_def_registry
from tensorflow.python.framework import ops as framework_ops
from tensorflow.python.grappler import cluster as grappler_cluster
from tensorflow.python.grappler import tf_optimizer
from tensorflow.python.ops import (
    cond_v2,
    control_flow_util_v2,
    data_flow_ops,
    lookup_ops,
    resource_variable_ops,
    stateful_random_ops,
    summary_ops_v2,
    while_v2,
)
from tensorflow.python.ops.numpy_ops import np_dtypes
from tensorflow.python.trackable import data_structures
from tensorflow.python.trackable import resource as trackable_resource

from placer.instances import instances_of

GraphDef = Any
FunctionDef = Any
RESOURCE_VARIABLE: type = resource_variable_ops.BaseResourceVariable
UNREAD_VARIABLE: type = resource_variable_ops._UnreadVariable  # what `assign` returns: the variable by another object
KERAS_TIES = {"mask": "_keras_mask", "logits": "_keras_logits"}  # attributes of tensors
OF_TENSORFLOW = ("_parent_trackable", "_name", "_unique_id", "_is_zeros_tensor")  # attributes that it puts on tensors
MARK = "_placer"  # TensorFlow keeps attributes with an underscore, and looks at none that it does not know
_call_flat = concrete_function.ConcreteFunction._call_flat
_captured_inputs = concrete_function.ConcreteFunction.captured_inputs
_collecting = threading.Lock()
_former_handles: dict[int, tuple[weakref.ref[Any], Any]] = {}  # id -> (a handle that was replaced, the one of now)


def optimize_graph(graph_def: GraphDef, keep: Sequence[str]) -> GraphDef:
    """Run Grappler's passes over `graph_def`; the tensors and ops named in `keep` stay, what they do not need goes.

    Nested function calls are inlined, constants folded, identical ops merged. While and If stay one op each. Grappler
    is given a CPU-only machine whatever is here, for two reasons: it would assume that unplaced ops run on the GPU and
    could choose tensor layouts that no CPU kernel takes; and to detect devices it opens a session of its own, which
    does not know about logical GPUs.
    """
    meta = meta_graph_pb2.MetaGraphDef()
    meta.graph_def.CopyFrom(graph_def)
    meta.collection_def["train_op"].node_list.value.extend(keep)
    config = tf.compat.v1.ConfigProto()
    rewrite = config.graph_options.rewrite_options
    rewrite.min_graph_nodes = -1
    rewrite.memory_optimization = rewrite.NO_MEM_OPT  # its temporary variables tie ops on several devices together
    rewrite.remapping = rewrite.OFF  # where it fuses Relu with a batch normalization, TensorFlow may refuse the graph
    with grappler_cluster.Provision(devices=[_any_cpu()]) as machine:
        return tf_optimizer.OptimizeGraph(config, meta, cluster=machine)


def _any_cpu() -> Any:
    cpu = device_properties_pb2.NamedDevice(name="/job:localhost/replica:0/task:0/device:CPU:0")
    cpu.properties.type, cpu.properties.num_cores, cpu.properties.frequency = "CPU", 1, 1000
    return cpu


def add_function(function_def: FunctionDef) -> None:
    """Register a function in this process (its first call sends it to the devices that take part)."""
    eager_context.context().add_function_def(function_def)


def new_function(name: str) -> FunctionDef:
    """An empty, stateful FunctionDef."""
    function = function_pb2.FunctionDef()
    function.signature.name = name
    function.signature.is_stateful = True
    return function


def rewrites_precision() -> str | None:
    """The option of `tf.config.optimizer` that has TensorFlow compute in short floats, where one is set. Asked before
    each call: `get_experimental_options` takes ten times as long.
    """
    options = eager_context.context()._optimizer_experimental_options
    return next((name for name in options if name.startswith("auto_mixed_precision") and options[name]), None)


@cache
def plain_config() -> bytes:
    """A serialized ConfigProto for functions that run as they are, without optimising again."""
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
    return bytes(config.SerializeToString())


def has_function(name: str) -> bool:
    return bool(eager_context.context().has_function(name))


def remove_function(name: str) -> None:
    """Remove a function here and on the workers; workers already gone are ignored."""
    context = eager_context.context()
    if context.has_function(name):
        with suppress(tf.errors.OpError):  # on a device that is lost
            context.remove_function(name)


def call_function(name: str, inputs: Sequence[Any], outputs: int, config: bytes) -> list[Any]:
    """Run a registered function as one multi-device op; resource handles stay on the devices that hold them."""
    return eager_execute.execute(  # type: ignore[no-any-return]
        name, outputs, inputs, attrs=("executor_type", "", "config_proto", config), ctx=eager_context.context()
    )


def function_graph(function_def: FunctionDef) -> tuple[GraphDef, dict[str, str]]:
    """(body of a FunctionDef as a GraphDef, arguments as Placeholders; tensor name in the function -> in the graph)."""
    graph_def, names = function_def_to_graph.function_def_to_graph_def(function_def)
    return graph_def, names


def mark_nodes(function_def: FunctionDef, mark: int) -> None:
    """Mark every node of a function, to know it in the graphs that TensorFlow makes of the function."""
    for node in function_def.node_def:
        node.attr[MARK].i = mark


@contextmanager
def collected_nodes(mark: int | None = None) -> Iterator[list[Any]]:
    """Within the block, TensorFlow records the graph each device was given; the list receives the NodeDefs when the
    block ends: those of the function with this mark only, or those of all functions.

    A function gives its graphs at its first run. TensorFlow records all threads into one list, and may even mix the
    graphs of functions that first run at the same time, so nodes are told apart one by one. A lock lets one thread
    collect at a time.
    """
    context = eager_context.context()
    nodes: list[Any] = []
    with _collecting:
        context.enable_graph_collection()
        try:
            yield nodes
            metadata = context.export_run_metadata()
            for function in metadata.function_graphs:
                for graph in function.partition_graphs:
                    nodes.extend(n for n in graph.node if mark is None or (MARK in n.attr and n.attr[MARK].i == mark))
        finally:
            context.disable_graph_collection()


def kernel_kinds(node: Any) -> frozenset[str]:
    """The device kinds ("cpu", "gpu") with a kernel for a NodeDef's op and types; empty where TensorFlow lists none.

    Some ops (function calls, arguments) have no kernel of their own. A build for CPUs lists none for GPUs.
    """
    attr = node.attr
    types = ((name, _types(attr[name])) for name in _constrained(node.op) if name in attr)
    return _kernel_kinds(node.op, tuple(types))


@cache
def _kernel_kinds(op_type: str, types: tuple[tuple[str, frozenset[int]], ...]) -> frozenset[str]:
    listed = registered_kernels(op_type)
    kinds = kinds_of([kernel for kernel in listed if takes(kernel, dict(types))])
    return (kinds & here()) or (frozenset({"cpu"}) if listed else frozenset())


@cache
def _constrained(op_type: str) -> tuple[str, ...]:
    """The attributes by whose types an op type's kernels differ."""
    constraints = (constraint for kernel in registered_kernels(op_type) for constraint in kernel.constraint)
    return tuple(sorted({constraint.name for constraint in constraints}))


def _types(value: Any) -> frozenset[int]:
    """The types in a NodeDef's attribute, by their numbers."""
    return frozenset({value.type, *value.list.type} - {0})


@cache
def registered_kernels(op_type: str) -> tuple[Any, ...]:
    """The KernelDefs of an op type that TensorFlow chooses by itself; labelled ones must be requested by name."""
    return tuple(kernel for kernel in kernels.get_registered_kernels_for_op(op_type).kernel if not kernel.label)


def kinds_of(listed: Sequence[Any]) -> frozenset[str]:
    """The device kinds of KernelDefs. DEFAULT stands for every kind without a fitting kernel of its own."""
    types = {kernel.device_type for kernel in listed}
    return frozenset(kind for kind in ("cpu", "gpu") if types & {kind.upper(), "DEFAULT"})


def takes(kernel: Any, types: Mapping[str, frozenset[int]]) -> bool:
    """Whether a KernelDef accepts these types. types: attribute -> what a NodeDef has there."""
    for constraint in kernel.constraint:
        allowed, given = constraint.allowed_values.list.type, types.get(constraint.name)
        if given is not None and allowed and not given <= set(allowed):
            return False
    return True


@cache
def here() -> frozenset[str]:
    """The device kinds that this build of TensorFlow supports."""
    return frozenset({"cpu", "gpu"} if tf.test.is_built_with_gpu_support() else {"cpu"})


def incarnations() -> dict[str, int]:
    """Device name -> incarnation, a number that is new each time the device starts; for all joined devices."""
    return _of_devices(pywrap_tf_session.TF_DeviceListIncarnation)


def joined_tasks() -> dict[int, str]:
    """Task number -> address of the workers this process last joined; empty before it joins any."""
    server = eager_context.context().get_server_def()
    jobs = () if server is None else server.cluster.job
    return {task: address for job in jobs if job.name == "worker" for task, address in job.tasks.items()}


def serve_cluster(cluster: tf.train.ClusterSpec) -> bool:
    """Connect this process to another cluster by the server that it has; returns whether it has one.

    `tf.config.experimental_connect_to_cluster` starts another server each time, and TensorFlow never ends one.
    """
    context = eager_context.context()
    current = context.get_server_def()
    if current is None:
        return False
    wanted = type(current)()
    wanted.CopyFrom(current)
    mine = [job for job in current.cluster.job if job.name == current.job_name]
    wanted.cluster.CopyFrom(cluster.as_cluster_def())
    for job in [job for job in wanted.cluster.job if job.name == current.job_name]:
        wanted.cluster.job.remove(job)
    wanted.cluster.job.extend(mine)
    context.update_server_def(wanted)
    return True


@contextmanager
def kept_by_workers(seconds: int) -> Iterator[None]:
    """Workers that are joined in the block keep what this process has there although it has not called them for so long
    by the wall clock, not just for ten minutes. It ends with them.
    """
    context = eager_context.context()
    context.ensure_initialized()  # which would tell them ten minutes
    context.set_server_def = partial(context.set_server_def, keep_alive_secs=seconds)
    context.update_server_def = partial(context.update_server_def, keep_alive_secs=seconds)
    try:
        yield
    finally:
        del context.set_server_def, context.update_server_def


def device_memory_limits() -> dict[str, int]:
    """Full device name -> bytes that TensorFlow may use of it.

    For a logical GPU its limit; for a whole GPU what was free when devices were set up; for a CPU always 256 MiB.
    """
    return _of_devices(pywrap_tf_session.TF_DeviceListMemoryBytes)


def _of_devices(look: Callable[[Any, int], int]) -> dict[str, int]:
    context = eager_context.context()
    context.ensure_initialized()
    devices = pywrap_tfe.TFE_ContextListDevices(context._handle)
    count = pywrap_tf_session.TF_DeviceListCount(devices)
    return {pywrap_tf_session.TF_DeviceListName(devices, i): look(devices, i) for i in range(count)}


def devices_are_set_up() -> bool:
    """Whether TensorFlow has initialised this process's devices, so that they can no longer be divided."""
    return eager_context.context()._context_handle is not None


def device_config() -> Any:
    """A ConfigProto for a session that sees this process's devices, including logical ones."""
    config, mine = tf.compat.v1.ConfigProto(), eager_context.context().config
    config.device_count.update(mine.device_count)
    config.gpu_options.CopyFrom(mine.gpu_options)
    return config


def input_type(node: Any, position: int) -> int:
    """DataType enum of a NodeDef's data input number `position`, from its op's definition."""
    op_def = op_def_registry.get(node.op)
    at = 0
    for arg in op_def.input_arg:
        if arg.number_attr:
            count = node.attr[arg.number_attr].i
        elif arg.type_list_attr:
            count = len(node.attr[arg.type_list_attr].list.type)
        else:
            count = 1
        if position < at + count:
            if arg.type_list_attr:
                return int(node.attr[arg.type_list_attr].list.type[position - at])
            return int(node.attr[arg.type_attr].type if arg.type_attr else arg.type)
        at += count
    raise IndexError(f"{node.name} has no input {position}")


@cache
def enumerated_attributes(op_type: str) -> frozenset[str]:
    """The attributes of an op whose texts say what it computes: those that allow a few, and Einsum's equation."""
    op_def = op_def_registry.get(op_type)
    listed = () if op_def is None else op_def.attr
    return frozenset({"equation", *(attr.name for attr in listed if attr.allowed_values.list.s)})


def is_stateful(op_type: str) -> bool:
    """Whether an op has an effect or a state of its own. A function has none: its ops have."""
    op_def = op_def_registry.get(op_type)
    return op_def is not None and op_def.is_stateful


def is_eager(tensor: Any) -> bool:
    """Whether a tensor has a value, rather than being a node of a graph."""
    return isinstance(tensor, tf.Tensor) and hasattr(tensor, "numpy")


def is_initialized(handle: Any) -> bool:
    """Whether the variable behind a handle of this process has a value."""
    return bool(tf.raw_ops.VarIsInitializedOp(resource=handle))


def read_variable(handle: Any, dtype: tf.DType) -> Any:
    """The value of the variable behind a handle."""
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)


def symbolic_tensor() -> type:
    """The class of tensors while a function is traced."""
    return framework_ops.SymbolicTensor  # type: ignore[no-any-return]


def handle_of(variable: Any) -> Any:
    """The handle of a variable, taken without its being watched (placer/train/variables/hooks.py)."""
    handle = vars(variable).get("_handle")
    return variable.handle if handle is None else handle  # variables of other libraries keep it elsewhere


def global_seed() -> int | None:
    """What tf.random.set_seed was last given; None where it was never called."""
    seed: int | None = eager_context.global_seed()
    return seed


def global_generators() -> dict[str, Any]:
    """The variables of the random generators that the whole program shares, those that exist, by what holds them."""
    found = {}
    if stateful_random_ops.global_generator is not None:
        found["tf.random.get_global_generator()"] = stateful_random_ops.global_generator.state
    shared = sys.modules.get("keras.src.backend.common.global_state")  # of this thread
    generator = None if shared is None else shared.get_global_attribute("global_seed_generator")
    if generator is not None:
        found["Keras's global SeedGenerator"] = generator.state.value
    return found


def has_keras_train_function(model: Any) -> bool:
    """Whether what `fit` calls for each batch is made by Keras, of the model's `train_step`."""
    for name in ("make_train_function", "_make_function"):
        if name in vars(model) or getattr(type(model), name) is not getattr(tf.keras.Model, name):
            return False
    return model.train_function is None or _step_of_keras(model.train_function) == model.train_step


def _step_of_keras(train_function: Any) -> Any:
    """The step that a train_function runs, where Keras made that; None for any other function."""
    made_by_keras = getattr(train_function, "__code__", None) in tf.keras.Model._make_function.__code__.co_consts
    left = [train_function] if made_by_keras else []
    while left:
        function = left.pop()
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        held = {name: cell.cell_contents for name, cell in cells}
        if "step_function" in held:
            return held["step_function"]
        inner = (getattr(one, "python_function", one) for one in held.values())
        left += [one for one in inner if isinstance(one, FunctionType)]
    return None


def keras_functions() -> dict[str, tuple[Any, str]]:
    """Functions of Keras that compute otherwise while a step is traced (placer/trace/eager/keras_functions.py): the
    module and the name of each. Empty where Keras is not imported.
    """
    found = {
        "logits": ("keras.src.backend.tensorflow.nn", "_get_logits"),
        "mean": ("keras.src.losses.loss", "reduce_values"),
        "max": ("keras.src.backend.tensorflow.numpy", "max"),
        "min": ("keras.src.backend.tensorflow.numpy", "min"),
    }
    return {what: (sys.modules[module], name) for what, (module, name) in found.items() if module in sys.modules}


def tied_by_keras(tensor: Any) -> dict[str, Any]:
    """What Keras tied to a tensor: its "mask", and the "logits" behind it."""
    held = vars(tensor)  # asking a tensor for an attribute that it lacks is slow, and most have none
    found = {kind: held.get(name) for kind, name in KERAS_TIES.items()} if held else {}
    return {kind: tied for kind, tied in found.items() if isinstance(tied, tf.Tensor)}


def tied_by_program(tensor: Any) -> str | None:
    """The first attribute of a tensor, composite ones included, that neither TensorFlow nor Keras has put on it."""
    held = vars(tensor)
    if not held:  # the usual case; this runs at each call of a plain step
        return None
    not_own = "_keras_" if isinstance(tensor, tf.Tensor) else "_"  # a composite one keeps its parts in such attributes
    return next((name for name in held if not name.startswith(not_own) and name not in OF_TENSORFLOW), None)


def tie_by_keras(tensor: Any, kind: str, tied: Any) -> None:
    """Tie as Keras does. kind: as in `tied_by_keras`."""
    setattr(tensor, KERAS_TIES[kind], tied)


def array_of(variable: Any) -> Any:
    """The value of a variable as an array that cannot be written, or as a scalar. On this process's CPU it is the
    tensor's own memory, which `numpy()` would copy: 0.9 s for 400 MB.
    """
    value = variable.read_value()._numpy()
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    return value


def bytes_of(tensor: Any) -> int:
    """Bytes of an eager tensor; counted for each step, so not through its shape, which is made anew each time."""
    return int(tensor._num_elements() * tensor.dtype.size)


def replace_handles(pairs: Sequence[tuple[Any, Any]]) -> None:
    """Remember (a handle that variables have lost, the one that they have now), because functions traced before hold
    the former, even where no object of Python stands for the variable any more. What asks a concrete function for its
    captures (SavedModel, which finds variables by them) is given those of now.
    """
    now = {id(former): fresh for former, fresh in pairs}
    for key, (gone, last) in list(_former_handles.items()):
        if id(last) in now:
            _former_handles[key] = (gone, now[id(last)])
    for former, fresh in pairs:
        _former_handles[id(former)] = (weakref.ref(former, partial(_forget_handle, id(former))), fresh)

    concrete_function.ConcreteFunction.captured_inputs = property(_current_inputs)


def _current_inputs(function: Any) -> list[Any]:
    return [current_handle(captured) for captured in _captured_inputs.fget(function)]


def _forget_handle(key: int, _: Any) -> None:
    _former_handles.pop(key, None)


def current_handle(handle: Any) -> Any:
    """The handle that its variable has now; the same where it was never replaced."""
    former = _former_handles.get(id(handle))
    return former[1] if former is not None and former[0]() is handle else handle


def has_former_handles() -> bool:
    """Whether functions may hold handles that their variables have lost."""
    return bool(_former_handles)


def compiles_for_xla(function: Any) -> bool:
    """Whether a tf.function was made with jit_compile=True; no other function was."""
    return bool(getattr(function, "_jit_compile", None))


def uses_autograph(function: Any) -> bool:
    """Whether a tf.function is converted by AutoGraph."""
    return bool(getattr(function, "_autograph", True))


def is_converted(code: Any) -> bool:
    """Whether AutoGraph has converted a function of this code before, called by another one, so that it reads its
    source no more.
    """
    return any(not how.user_requested for how in autograph_api._TRANSPILER._cache._cache.get(code, ()))


def as_tensorflows_own(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which AutoGraph calls as it is, and goes on to convert what that calls."""
    return autograph_api.autograph_artifact(function)  # type: ignore[no-any-return]


def autograph_overloads() -> dict[str, Callable[..., Any]]:
    """What AutoGraph calls in the place of Python's builtins, by their names: the dict itself."""
    found: dict[str, Callable[..., Any]] = py_builtins.BUILTIN_FUNCTIONS_MAP
    return found


@contextmanager
def autograph_calls(instead: Mapping[Any, Callable[..., Any]]) -> Iterator[None]:
    """Within the block, AutoGraph calls these in the place of Python's builtins, of which it replaces no others."""
    known, overloads = py_builtins.SUPPORTED_BUILTINS, py_builtins.BUILTIN_FUNCTIONS_MAP
    overloads.update({asked.__name__: own for asked, own in instead.items()})
    py_builtins.SUPPORTED_BUILTINS = (*known, *instead)
    try:
        yield
    finally:
        py_builtins.SUPPORTED_BUILTINS = known
        overloads.update({asked.__name__: asked for asked in instead})  # another thread may be between the two


BRANCHES = (
    control_flow_util_v2.CondBranchFuncGraph,
    control_flow_util_v2.WhileBodyFuncGraph,
    control_flow_util_v2.WhileCondFuncGraph,
)


@contextmanager
def around_branches(around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Within the block, `around` is given what this thread traces as a branch (of an If or a Case), or as the condition
    or the body of a While; what it returns is traced instead. Only one thread may be in such a block.
    """
    thread, trace = threading.get_ident(), framework_func_graph.func_graph_from_py_func

    def traced(name: str, python_func: Callable[..., Any], *args: Any, func_graph: Any = None, **kwargs: Any) -> Any:
        if isinstance(func_graph, BRANCHES) and threading.get_ident() == thread:
            python_func = around(python_func)
        return trace(name, python_func, *args, func_graph=func_graph, **kwargs)

    framework_func_graph.func_graph_from_py_func = traced
    try:
        yield
    finally:
        framework_func_graph.func_graph_from_py_func = trace


def branches_of(op: Any) -> list[Any]:
    """The graphs of the branches of a traced If or Case; none for any other op. They take all inputs but the first."""
    return list(cond_v2.get_func_graphs(op)) if op.type in ("If", "StatelessIf", "Case", "StatelessCase") else []


def loop_of(op: Any) -> tuple[Any, Any] | None:
    """The graphs of (the condition, the body) of a traced While; None for any other op."""
    if op.type not in ("While", "StatelessWhile"):
        return None
    return while_v2._get_graph(op, "cond", "_cond_graph"), while_v2._get_graph(op, "body", "_body_graph")


WRAPPER = "cflow_gradient_wrapper"


def wrapped_graph(op: Any) -> Any:
    """The graph of the function that TensorFlow puts around a branch or a loop under a persistent tape, or under one
    tape within another; None for any other op. It takes all inputs.
    """
    name = op.get_attr("f").name if op.type in ("PartitionedCall", "StatefulPartitionedCall") else ""
    return called_graph(op) if WRAPPER in name else None


def called_graph(op: Any) -> Any:
    """The graph of the function that a traced op calls; None for any other op, and where no graph was traced for it."""
    if op.type not in ("PartitionedCall", "StatefulPartitionedCall"):
        return None
    graph = op.graph
    while graph is not None:
        function = graph._get_function(op.get_attr("f").name)
        if function is not None:
            return getattr(function, "graph", None)
        graph = getattr(graph, "outer_graph", None)
    return None


def has_gradient(op: Any) -> bool:
    """Whether a gradient may flow through a traced op."""
    try:
        return framework_ops.get_gradient_function(op) is not None
    except LookupError:
        return False


def is_step_graph(graph: Any) -> bool:
    """Whether a graph is that of a trace itself, or of a branch or a loop there; that of a function called in it is
    not.
    """
    while isinstance(graph, BRANCHES):
        graph = graph.outer_graph
    function_graph = framework_func_graph.FuncGraph
    return isinstance(graph, function_graph) and not isinstance(graph.outer_graph, function_graph)


def managed_names(frame: FrameType) -> tuple[str, ...]:
    """The names that AutoGraph itself sets for the branch or loop that it makes in this frame."""
    if frame.f_globals.get("__name__") != control_flow.__name__:
        return ()
    return tuple(map(str, frame.f_locals.get("symbol_names", ())))


def carried(frame: FrameType) -> list[tuple[str, Any]] | None:
    """The names and first values of what AutoGraph carries through the While that it makes in this frame, those of the
    program last; None where it makes none.
    """
    if frame.f_globals.get("__name__") != control_flow.__name__ or frame.f_code.co_name != "_tf_while_stmt":
        return None
    names, values = frame.f_locals.get("symbol_names", ()), frame.f_locals.get("init_vars", ())
    return list(zip(map(str, names), values, strict=False))


def is_deterministic() -> bool:
    """Whether tf.config.experimental.enable_op_determinism was called."""
    return bool(framework_config.is_op_determinism_enabled())


def op_callbacks() -> tuple[Any, ...]:
    """What TensorFlow calls with each op of this thread (tf.debugging.enable_check_numerics and its like)."""
    return tuple(eager_context.context().op_callbacks)


def number_promotion() -> tuple[Any, ...]:
    """How TensorFlow's operators take numbers of several types together (experimental_enable_numpy_behavior)."""
    return framework_ops.get_dtype_conversion_mode(), np_dtypes.is_prefer_float32()


def keras_settings() -> tuple[Any, Any]:
    """What this thread's program has set with keras.config.set_dtype_policy (or Keras itself has) and with
    enable_flash_attention; None before that.
    """
    held = sys.modules["keras.src.backend.common.global_state"].GLOBAL_STATE_TRACKER  # read before each call
    return getattr(held, "dtype_policy", None), getattr(held, "flash_attention", None)


def element_spec(spec: tf.data.IteratorSpec) -> Any:
    """The TypeSpec of what the iterator of this spec gives."""
    return spec._element_spec


def is_found_by_name(resource: Any) -> bool:
    """Whether TensorFlow looks for a table, writer or queue by its name: for an open one that is not anonymous."""
    return not getattr(resource, "_is_anonymous", False) and not getattr(resource, "_closed", False)


def kept_by_dataset(dataset: Any) -> str | None:
    """What a dataset of tf.data keeps under a name: "cache", in memory; "order", of a shuffle that TensorFlow would
    shuffle otherwise without it; "draws", of random numbers that go on from epoch to epoch; None where it keeps
    nothing, or is a node of a graph.
    """
    if not is_eager(getattr(dataset, "_variant_tensor", None)):  # none while it is made, and where that failed
        return None
    if isinstance(dataset, cache_op.CacheDataset):
        return "cache" if dataset._filename.numpy() == b"" else None
    if isinstance(dataset, random_op._RandomDataset):  # by which sample_from_datasets mixes others
        return "draws" if dataset._rerandomize and _is_seeded(dataset) else None
    if isinstance(dataset, shuffle_op._ShuffleDataset):
        # A fixed order by a seed is the same again, and unseeded ones in each epoch are anything.
        return "order" if _is_seeded(dataset) == (dataset._reshuffle_each_iteration is not False) else None
    return None


def _is_seeded(dataset: Any) -> bool:
    return bool(dataset._seed.numpy()) or bool(dataset._seed2.numpy())


def makes_batches(dataset: Any) -> bool:
    """Whether a dataset of tf.data puts elements together to batches."""
    kinds = batch_op._BatchDataset, batch_op._ParallelBatchDataset, ragged_batch_op._DenseToRaggedDataset
    return isinstance(dataset, (*kinds, padded_batch_op._PaddedBatchDataset))


def stored_list(value: Any) -> list[Any] | None:
    """The list that TensorFlow put a wrapper around, which tracks what is set; None where the value is no wrapper."""
    return value._storage if type(value) is data_structures.ListWrapper else None


def tracked_container(value: Any) -> tuple[Any, Callable[[], None]]:
    """The list or dict that TensorFlow put a wrapper around, and what to call when that was changed; the value itself,
    and nothing to do, where it is no wrapper.
    """
    if type(value) is data_structures.ListWrapper:
        return value._storage, value._update_snapshot
    if type(value) is data_structures._DictWrapper:
        return value.__wrapped__, value._update_snapshot
    return value, lambda: None


def traces_dataset() -> bool:
    """Whether a function of a tf.data pipeline is being traced now, in this thread."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == structured_function.__name__:
            return True
        frame = frame.f_back
    return False


def dataset_captures() -> Iterator[Any]:
    """The handles that functions of this process's tf.data pipelines hold. TensorFlow reads them when it likes."""
    for wrapper in instances_of([structured_function.StructuredFunctionWrapper]):
        function = getattr(wrapper, "_function", None)  # none while it is traced, and where that failed
        if function is not None:
            yield from (outer for outer, _ in function.graph.captures if outer.dtype == tf.resource)


def called_graphs() -> Iterator[Any]:
    """The graphs of this process's functions, without Placer's own, and without those of tf.data pipelines, which have
    kernels of their own.
    """
    wrappers = instances_of([structured_function.StructuredFunctionWrapper])
    piped = {id(f.graph) for wrapper in wrappers if (f := getattr(wrapper, "_function", None)) is not None}
    for graph in instances_of([framework_func_graph.FuncGraph]):
        within = graph
        while within is not None and id(within) not in piped:
            within = getattr(within, "outer_graph", None)
        if within is None and not getattr(graph, MARK, False):
            yield graph


def mark_graph() -> None:
    """The graph that is built now is Placer's own."""
    setattr(framework_ops.get_default_graph(), MARK, True)


def draws_from_seeds(graph: Any) -> bool:
    """Whether an op of a function's graph draws random numbers from a state of its own that begins with a seed."""
    if (known := _seeded.get(graph)) is None or known[0] != graph.version:
        ops = [op for op in graph.get_operations() if _has_seed(op.type)]
        _seeded[graph] = known = graph.version, any(op.get_attr("seed") or op.get_attr("seed2") for op in ops)
    return known[1]


_seeded: weakref.WeakKeyDictionary[Any, tuple[int, bool]] = weakref.WeakKeyDictionary()


@cache
def _has_seed(op_type: str) -> bool:
    found = op_def_registry.get(op_type)
    return found is not None and found.is_stateful and {"seed", "seed2"} <= {attr.name for attr in found.attr}


def is_handle_of_variable(handle: Any) -> bool:
    """Whether a resource is a variable's, which alone says what it holds."""
    data = getattr(handle, "_handle_data", None)
    return bool(data is not None and data.is_set and data.shape_and_type)


def named_resource_kinds() -> dict[str, tuple[type, ...]]:
    """What holds a resource that TensorFlow finds by its name: kind -> classes."""
    return {
        "table": (lookup_ops.InitializableLookupTableBase, lookup_ops.MutableHashTable, lookup_ops.DenseHashTable),
        "loaded": (trackable_resource.RestoredResource,),
        "writer": (summary_ops_v2._ResourceSummaryWriter,),
        "queue": (data_flow_ops.QueueBase,),
    }


def is_recorded() -> bool:
    """Whether ops executed now are recorded: in a function being traced, or on a gradient tape."""
    return not pywrap_tfe.TFE_Py_TapeSetIsEmpty() or not eager_context.executing_eagerly()


def call_concrete(concrete: Any, inputs: Sequence[Any], captured: Sequence[Any] | None = None) -> Any:
    """What a concrete function returns for flat inputs. captured: other tensors than those that it captured; such calls
    are not reported to the hook.
    """
    if captured is None:
        return concrete._call_flat(list(inputs), concrete.captured_inputs)
    return _call_flat(concrete, list(inputs), list(captured))


Around = Callable[[Any, Sequence[Any]], tuple[Sequence[Any], Callable[[], None] | None]]


def around_function_calls(hook: Around | None) -> None:
    """Call `hook` with each concrete function and its captured inputs right before it runs; use the captured inputs
    that it returns instead, and call what it returns beside them, if anything, right afterwards. None removes the hook.
    """
    with _patching:
        _patched.hook = hook
        _patch()


@contextmanager
def recorded_calls() -> Iterator[list[tuple[Any, list[Any]]]]:
    """Within the block, the list receives this thread's calls of concrete functions: (function, its flat inputs)."""
    calls: list[tuple[Any, list[Any]]] = []
    thread = threading.get_ident()
    with _patching:
        _patched.recorders[thread] = calls
        _patch()
    try:
        yield calls
    finally:
        with _patching:
            del _patched.recorders[thread]
            _patch()


class _Patched:
    """What the patched method does besides."""

    def __init__(self) -> None:
        self.hook: Around | None = None
        self.recorders: dict[int, list[tuple[Any, list[Any]]]] = {}  # by thread


_patched, _patching = _Patched(), threading.Lock()


def _patch() -> None:
    """Replace the method as long as anybody needs that."""
    needed = _patched.hook is not None or _patched.recorders
    concrete_function.ConcreteFunction._call_flat = _hooked_call_flat if needed else _call_flat


def _hooked_call_flat(self: Any, tensor_inputs: Any, captured_inputs: Any) -> Any:
    recorder = _patched.recorders.get(threading.get_ident()) if _patched.recorders else None
    if recorder is not None:
        recorder.append((self, list(tensor_inputs)))
    hook = _patched.hook
    if hook is None:
        return _call_flat(self, tensor_inputs, captured_inputs)
    captured_inputs, afterwards = hook(self, captured_inputs)
    if afterwards is None:
        return _call_flat(self, tensor_inputs, captured_inputs)
    try:
        return _call_flat(self, tensor_inputs, captured_inputs)
    finally:
        afterwards()
