"""Per-op times on each device, from traced steps of a TensorFlow session on the same cluster."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as MappingABC
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import tensorflow as tf

from placer import internals
from placer.capture import Captured
from placer.devices import Devices
from placer.graph import OpGraph
from placer.nodedef import handle_node, source_of
from placer.rewrite import Template
from placer.wiring import spread

RUNS, WARM_UP = 5, 3
_serial = itertools.count()


@dataclass(frozen=True, slots=True)
class TracedOp:
    """One op, or one transfer, of a traced step. Times in seconds from the step's first op."""

    name: str
    type: str
    device: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class TracedStep:
    """What ran in one step, on which of our devices, and what crossed between them."""

    ops: tuple[TracedOp, ...]
    transfers: tuple[TracedOp, ...]

    def cost_s(self) -> dict[str, float]:
        """Op name -> seconds; an op fused under another's name is not there."""
        costs: dict[str, float] = defaultdict(float)
        for op in self.ops:
            costs[op.name] += op.end_s - op.start_s
        return dict(costs)


def profile(
    captured: Captured,
    devices: Devices,
    inputs: Sequence[Any],
    runs: int = RUNS,
    start: MappingABC[str, Any] | None = None,
    warm_up: int = WARM_UP,
    limit_s: float | None = None,
) -> OpGraph:
    """The captured graph with `cost_s` of every op on every device: the median of `runs` traced steps on each.

    start, limit_s: as in `trace_steps`. A device that cannot run the step alone (memory, a missing kernel) gets no
    costs, and so no ops.
    """
    costs: dict[str, dict[str, float]] = defaultdict(dict)
    for d, device in enumerate(devices.topology.devices):
        try:
            alone = [d] * len(captured.graph)
            steps = trace_steps(captured, devices, alone, inputs, runs, (), start, warm_up, limit_s)
        except (tf.errors.ResourceExhaustedError, tf.errors.InvalidArgumentError):
            continue
        per_step = [step.cost_s() for step in steps]
        for op in captured.graph.ops:
            costs[op.name][device.name] = median(step.get(op.name, 0.0) for step in per_step)
    return with_costs(captured.graph, costs)


def with_costs(graph: OpGraph, costs: MappingABC[str, MappingABC[str, float]]) -> OpGraph:
    """The graph with cost_s replaced; a graph keeps its fingerprint under new costs."""
    ops = tuple(replace(op, cost_s=dict(costs[op.name]), devices=None) for op in graph.ops)
    return OpGraph(graph.name, ops, graph.edges, graph.source)


def scaled(graph: OpGraph, factor: MappingABC[str, float]) -> OpGraph:
    """The graph with every cost on a device multiplied by that device's factor."""
    costs = {op.name: {d: s * factor.get(d, 1.0) for d, s in op.cost_s.items()} for op in graph.ops}
    ops = tuple(replace(op, cost_s=costs[op.name]) for op in graph.ops)
    return OpGraph(graph.name, ops, graph.edges, graph.source)


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

    What is traced is the very function that a placed step calls. The steps train variables of their own; the inputs lie
    ready on the devices. order: as in `Template.placed`. start: node name of each variable -> where it starts; None =
    at the caller's values. limit_s: of one step; a session waits for a lost worker for ever. Raises what TensorFlow
    raises.
    """
    placed = {op.name: devices.tf_name(d) for op, d in zip(captured.graph.ops, assignment, strict=True)}
    function = Template(captured, devices.host).placed("placer_traced", placed, order)
    graph_def, names = internals.function_graph(function)
    arguments = [argument.name for argument in function.signature.input_arg]
    fed = [*inputs, *captured.feeds.values()]
    handles = dict(zip(arguments[len(fed) :], captured.variables, strict=True))
    _with_variables(graph_def, captured, placed, handles)
    _with_inputs(graph_def, dict(zip(arguments, fed, strict=False)))
    fetches = [
        *(names[function.ret[arg.name]] for arg in function.signature.output_arg),
        *function.control_ret.values(),
    ]
    values = captured.variables if start is None else start
    begin = {argument: values[name].numpy() for argument, name in handles.items()}
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(graph_def, name="")
        assigns, fed_values = _assignments(graph, begin)
        drops = _drops(graph, handles)
        with tf.compat.v1.Session(devices.session_target, graph=graph, config=session_config(limit_s)) as session:
            session.run(assigns, feed_dict=fed_values)
            steps = _run(session, fetches, runs, warm_up, devices)
            session.run(drops)
            return steps


def _run(session: Any, fetches: list[str], runs: int, warm_up: int, devices: Devices) -> list[TracedStep]:
    for _ in range(warm_up):
        session.run(fetches)
    options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
    steps = []
    for _ in range(runs):
        metadata = tf.compat.v1.RunMetadata()
        session.run(fetches, options=options, run_metadata=metadata)
        steps.append(_traced(metadata.step_stats, devices))
    return steps


def _traced(step_stats: Any, devices: Devices) -> TracedStep:
    names = {tf_name: name for name, tf_name in devices.tf_names.items()}
    ops, transfers = [], []
    for per_device in step_stats.dev_stats:
        device = names.get(per_device.device)
        if device is None:
            continue
        for node in per_device.node_stats:
            if node.node_name == "RecvTensor":
                transfers.append(_transfer(node, device))
            else:
                ops.append(_op(node, device))
    zero_s = min((op.start_s for op in ops), default=0.0)
    return TracedStep(tuple(_since(zero_s, ops)), tuple(_since(zero_s, transfers)))


def _op(node: Any, device: str) -> TracedOp:
    """An op's own time: from the kernel's start to its end, without the executor's bookkeeping."""
    begin_s = node.all_start_nanos * 1e-9
    kind = node.timeline_label.partition(" = ")[2].partition("(")[0]
    start_s, end_s = begin_s + node.op_start_rel_nanos * 1e-9, begin_s + node.op_end_rel_nanos * 1e-9
    return TracedOp(node.node_name, kind, device, start_s, end_s)


def _transfer(node: Any, device: str) -> TracedOp:
    """A tensor's way to `device`; such rows come in microseconds only."""
    begin_s = node.all_start_micros * 1e-6
    return TracedOp(node.timeline_label, "RecvTensor", device, begin_s, begin_s + node.all_end_rel_micros * 1e-6)


def _since(zero_s: float, rows: Sequence[TracedOp]) -> list[TracedOp]:
    return [replace(row, start_s=row.start_s - zero_s, end_s=row.end_s - zero_s) for row in rows]


def _with_variables(
    graph_def: Any, captured: Captured, placed: MappingABC[str, str], handles: MappingABC[str, str]
) -> None:
    """Arguments that are variable handles become variables that no other session or step shares."""
    run = next(_serial)
    for node in graph_def.node:
        name = handles.get(node.name)
        if name is not None:
            node.CopyFrom(handle_node(node.name, captured.variables[name], f"placer_profile_{run}_{node.name}"))
            node.device = placed[name]


def _with_inputs(graph_def: Any, values: MappingABC[str, Any]) -> None:
    """Arguments that are tensors become constants, one copy on each device that uses them."""
    by_name = {node.name: node for node in graph_def.node}
    for argument, tensor in values.items():
        node = by_name[argument]
        node.Clear()
        node.name, node.op = argument, "Const"
        node.attr["dtype"].type = tensor.dtype.as_datatype_enum
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(tensor))
        users = [user.name for user in by_name.values() if argument in {source_of(i) for i in user.input}]
        spread(graph_def.node, by_name, argument, users)


def _assignments(graph: Any, start: MappingABC[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    assigns, values = [], {}
    for i, (name, value) in enumerate(start.items()):
        handle = graph.get_tensor_by_name(f"{name}:0")
        with tf.device(handle.device):
            fed = tf.compat.v1.placeholder(value.dtype, value.shape, name=f"placer_value_{i}")
            assigns.append(tf.raw_ops.AssignVariableOp(resource=handle, value=fed))
        values[fed.name] = value
    return assigns, values


def _drops(graph: Any, handles: Iterable[str]) -> list[Any]:
    """What frees the session's variables, for a worker holds them longer than the session lives."""
    drops = []
    for name in handles:
        handle = graph.get_tensor_by_name(f"{name}:0")
        with tf.device(handle.device):
            drops.append(tf.raw_ops.DestroyResourceOp(resource=handle))
    return drops


def session_config(limit_s: float | None = None) -> Any:
    """No second optimisation: what is traced is what a placed step runs. limit_s: of each call; None = for ever."""
    config = internals.device_config()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
    config.operation_timeout_in_ms = int(1e3 * (limit_s or 0))
    return config
