"""Runs and traces the steps of a mapping in a TensorFlow session on the same cluster."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Mapping as MappingABC
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from placer import tf_internals
from placer.devices.cluster import Devices
from placer.devices.workers.deadline import DeviceLostError, waiting
from placer.errors import warn
from placer.execute.outputs import is_out_of_memory
from placer.execute.rewrite import Template
from placer.execute.send_recv import spread
from placer.graph.topology import Device
from placer.profile.step_trace import TracedStep, traced_step
from placer.profile.trace_clock import evenly_timed
from placer.trace.capture import Captured
from placer.trace.graph_def.node_def import handle_node, source_of
from placer.trace.random_streams import Draws

RUNS, WARM_UP = 5, 3
PROFILED, CLOSED = "ops were profiled", "a session was closed"
FED_BYTES = 1 << 24  # of variables that are assigned at once; a device holds them twice meanwhile
MOST_LOST = 0.1  # share of a GPU's kernel time that may belong to no op
_serial = itertools.count()


def trace_steps(
    captured: Captured,
    devices: Devices,
    assignment: Sequence[int],
    inputs: Sequence[Any],
    runs: int = RUNS,
    order: Sequence[str] = (),
    start: MappingABC[str, Any] | None = None,
    warm_up: int = WARM_UP,
    limit_s: float | None = None,
) -> list[TracedStep]:
    """`runs` traced steps under a mapping of the captured graph's ops, after `warm_up` untraced ones.

    The traced function is the one that a placed step calls. The steps train variables of their own; the inputs are
    constants on the devices. order: as in `Template.placed`. start: node name of each variable -> its first value; None
    = the user's values. limit_s: of one step; without it a session waits forever for a lost worker. Raises
    tf.errors.OpError.
    """
    placed = {op.name: devices.tf_name(d) for op, d in zip(captured.graph.ops, assignment, strict=True)}
    graph_def, fetches, handles = _session_graph(captured, devices.host, placed, inputs, order)
    values = captured.variables if start is None else start
    begin = {argument: _array(values[name]) for argument, name in handles.items()}
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(graph_def, name="")
        assigns = _assignments(graph, begin)
        drops = _drops(graph, handles)
        config = session_config(limit_s, soft=not devices.same_bits, cluster=devices.session_cluster)
        with watched_session(devices.session_target, graph, config) as session:
            try:
                for some, fed_values in assigns:
                    session.run(some, feed_dict=fed_values)
                steps = _run(session, fetches, runs, warm_up, devices)
            except tf.errors.OpError as error:
                if is_out_of_memory(error):  # after other errors the session might wait for a lost worker
                    session.run(drops)
                raise
            session.run(drops)
            return steps


def _session_graph(
    captured: Captured, host: str, placed: MappingABC[str, str], inputs: Sequence[Any], order: Sequence[str]
) -> tuple[Any, list[str], dict[str, str]]:
    """(the graph of a placed step, with the inputs as constants and variables of its own; what a session is asked for,
    to run all of it; node name of each variable's handle -> that of the captured variable).
    """
    function = Template(captured, host).placed("placer_traced", placed, order)
    graph_def, names = tf_internals.functions.function_graph(function)
    graph_def.library.CopyFrom(captured.graph_def.library)  # bodies of branches and loops, which the session must know
    arguments = [argument.name for argument in function.signature.input_arg]
    fed = [*inputs, *([Draws().next()] if captured.draws else []), *captured.feeds.values()]
    handles = dict(zip(arguments[len(fed) :], captured.variables, strict=True))
    _with_variables(graph_def, captured, placed, handles)
    _with_inputs(graph_def, dict(zip(arguments, fed, strict=False)))
    fetches = [
        *(names[function.ret[arg.name]] for arg in function.signature.output_arg),
        *function.control_ret.values(),
        *(node.name for node in function.node_def if node.op == "_Send"),  # a session runs only what is asked for
    ]
    return graph_def, fetches, handles


@contextmanager
def watched_session(target: str, graph: tf.Graph, config: Any) -> Iterator[Any]:
    """A session with a deadline. If a device is lost, the session stays open, because TensorFlow would wait 30 s for
    its end, and then report that it did not end.
    """
    # Two kinds of calls are watched, so that a call that is held up counts once.
    with waiting(CLOSED, first=True), tf.compat.v1.Session(target, graph=graph, config=config) as session:
        try:
            with waiting(PROFILED, first=True):
                yield session
        except DeviceLostError:
            session.close = lambda: None
            raise


def _run(session: Any, fetches: list[str], runs: int, warm_up: int, devices: Devices) -> list[TracedStep]:
    for _ in range(warm_up):
        session.run(fetches)
    return [traced_step(run_traced(session, fetches).step_stats, devices.name_of) for _ in range(runs)]


def run_traced(session: Any, fetches: Any, wall: Callable[[], float] = time.time) -> Any:
    """The RunMetadata of one call of the session, during which the wall clock was not set."""
    options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)

    def run() -> Any:
        metadata = tf.compat.v1.RunMetadata()
        session.run(fetches, options=options, run_metadata=metadata)
        return metadata

    return evenly_timed(run, wall)


def _with_variables(
    graph_def: Any, captured: Captured, placed: MappingABC[str, str], handles: MappingABC[str, str]
) -> None:
    """Turn arguments that are variable handles into variables that no other session or step shares."""
    run = next(_serial)
    for node in graph_def.node:
        name = handles.get(node.name)
        if name is not None:
            node.CopyFrom(handle_node(node.name, captured.variables[name], f"placer_profile_{run}_{node.name}"))
            node.device = placed[name]


def _with_inputs(graph_def: Any, values: MappingABC[str, Any]) -> None:
    """Turn arguments that are tensors into constants, one copy on each device that uses them."""
    by_name = {node.name: node for node in graph_def.node}
    for argument, tensor in values.items():
        node = by_name[argument]
        node.Clear()
        node.name, node.op = argument, "Const"
        node.attr["dtype"].type = tensor.dtype.as_datatype_enum
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(tensor))
        users = [user.name for user in by_name.values() if argument in {source_of(i) for i in user.input}]
        spread(graph_def.node, by_name, argument, users)


def _array(value: Any) -> Any:
    """A variable or tensor as an array; TensorFlow makes `bytes` of a single string."""
    found = value.numpy()
    return np.array(found, dtype=object) if isinstance(found, bytes) else found


def _assignments(graph: Any, start: MappingABC[str, Any]) -> list[tuple[list[Any], dict[str, Any]]]:
    """Assignments, and the values that they are fed, in batches of FED_BYTES to be run one after another, because a
    device holds what it is fed twice.
    """
    found: list[tuple[list[Any], dict[str, Any]]] = []
    fed_bytes = 0
    for i, (name, value) in enumerate(start.items()):
        if not found or fed_bytes + value.nbytes > FED_BYTES:
            found.append(([], {}))
            fed_bytes = 0
        fed_bytes += value.nbytes
        handle = graph.get_tensor_by_name(f"{name}:0")
        with tf.device(handle.device):
            fed = tf.compat.v1.placeholder(value.dtype, value.shape, name=f"placer_value_{i}")
            found[-1][0].append(tf.raw_ops.AssignVariableOp(resource=handle, value=fed))
        found[-1][1][fed.name] = value
    return found


def _drops(graph: Any, handles: Iterable[str]) -> list[Any]:
    """Ops that free the session's variables, which a worker would keep after the session ends."""
    drops = []
    for name in handles:
        handle = graph.get_tensor_by_name(f"{name}:0")
        with tf.device(handle.device):
            drops.append(tf.raw_ops.DestroyResourceOp(resource=handle))
    return drops


def session_config(
    limit_s: float | None = None, *, soft: bool = False, cluster: MappingABC[int, str] | None = None
) -> Any:
    """A ConfigProto with this process's logical devices and without graph optimisation, like a placed step.

    limit_s: of each call; None = unlimited. soft: an op without a kernel for its device runs on another. cluster: the
    workers by task number, if they do not know one another.
    """
    config = tf_internals.devices.device_config()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
    config.allow_soft_placement = soft
    config.operation_timeout_in_ms = int(1e3 * (limit_s or 0))
    if cluster:
        config.cluster_def.CopyFrom(tf.train.ClusterSpec({"worker": dict(cluster)}).as_cluster_def())
    return config


def warn_of_lost_kernels(steps: Sequence[TracedStep], device: Device) -> None:
    """Warn if a GPU's trace has no kernels, or if many kernels belong to no known op."""
    if device.kind != "gpu" or not any(op.device == device.name for step in steps for op in step.ops):
        return
    kernel_s, lost_s = sum(step.kernel_s for step in steps), sum(step.unattributed_s for step in steps)
    if kernel_s == 0:
        _warn_once(
            "the trace of this GPU has no kernel times (CUPTI is missing or may not be used), so launch times stand in "
            "for them until steps are measured; install TensorFlow as tensorflow[and-cuda], or allow profiling."
        )
    elif lost_s > MOST_LOST * kernel_s:
        warn(f"{device.name}: {lost_s / kernel_s:.0%} of its kernels' time belongs to no op.")


@cache
def _warn_once(text: str) -> None:
    warn(text)
