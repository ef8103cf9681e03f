"""Per-op times on each device, from traced steps of a TensorFlow session on the same cluster."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from collections.abc import Mapping as MappingABC
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

import tensorflow as tf

from placer.devices.cluster import Devices
from placer.errors import PlacerError, short, warn, what_failed
from placer.execute.outputs import is_out_of_memory
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from placer.profile.arrivals import arrivals
from placer.profile.partial_device import attempts, by_ratio, nearest_lack, without
from placer.profile.step_trace import TracedStep
from placer.profile.traced_session import RUNS, WARM_UP, trace_steps, warn_of_lost_kernels
from placer.trace.capture import Captured

UNABLE = (tf.errors.InvalidArgumentError, tf.errors.NotFoundError, tf.errors.UnimplementedError)
MOST_UNABLE = 12  # tries, each of which finds one op without a kernel on the GPU
NODE = re.compile(r"\{\{node ([^{}\s]+)\}\}")


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

    start, limit_s: as in `trace_steps`. An op without a kernel for a device gets no cost there. If a device's memory is
    not enough for the whole step, a part runs elsewhere, and its cost on the device is estimated
    (placer.profile.partial_device). A device that can run no op of the step gets no costs, and so no ops. The cost of
    an op on a GPU of this process includes bringing the op's part of the batch there (placer.profile.arrivals). Raises
    PlacerError if an op has no cost on any device.
    """
    topology, able = devices.topology, captured.graph
    own: dict[str, dict[str, float]] = defaultdict(dict)
    spare: dict[str, dict[str, float]] = defaultdict(dict)

    def traced(assignment: Sequence[int]) -> list[TracedStep]:
        order = _order(captured, devices, assignment)
        return trace_steps(captured, devices, assignment, inputs, runs, order, start, warm_up, limit_s)

    why_not: dict[str, str] = {}
    for d, device in enumerate(topology.devices):
        found = first_that_runs(traced, able, topology, d)
        able = found.graph
        if isinstance(found.ran, str):
            why_not[device.name] = found.ran
            if device.kind == "gpu":
                warn(f"{device.name} gets no ops because it could not be profiled: {found.ran}")
            continue
        ran = found.ran
        warn_of_lost_kernels(ran.steps, device)
        seen = _medians(able, topology, ran.assignment, ran.steps)
        for (name, at), seconds in seen.items():
            if seconds is not None:
                (own if at == device.name else spare)[name][at] = seconds
        able = without(able, topology, [place for place, seconds in seen.items() if seconds is None])
    times = {op.name: {**spare[op.name], **own[op.name]} for op in able.ops}
    costs = by_ratio(able, topology, times)
    _check_timed(captured.graph, costs, why_not)
    for name, brought_s in arrivals(captured, devices, inputs).items():
        costs[name] |= {gpu: costs[name][gpu] + s for gpu, s in brought_s.items() if gpu in costs[name]}
    return with_costs(captured.graph, costs)


def _order(captured: Captured, devices: Devices, assignment: Sequence[int]) -> Sequence[str]:
    """One order of all ops if workers share the step, because they might wait for each other without it; else empty."""
    if not devices.addresses or len(set(assignment)) == 1:
        return ()
    names = (captured.graph.ops[v].name for v in captured.graph.order)
    return [name for name in names if name not in captured.variables]


def _check_timed(graph: OpGraph, costs: MappingABC[str, MappingABC[str, float]], why_not: MappingABC[str, str]) -> None:
    """Raise PlacerError if an op has no cost on any device. why_not: why nothing ran, by device."""
    bare = next((op for op in graph.ops if not costs[op.name]), None)
    if bare is not None:
        said = "; ".join(f"{name}: {reason}" for name, reason in why_not.items()) or "each ran it elsewhere"
        raise PlacerError(
            f"{graph.name}: no device timed op {short(bare.name)} ({bare.type}) in a profile ({said}); run the step by "
            "itself to see more."
        )


class Ran(NamedTuple):
    """Traced steps, and on which device each op was asked to run."""

    assignment: Sequence[int]
    steps: list[TracedStep]


class FirstRun(NamedTuple):
    """The traced steps of a device, or why nothing runs there; and the graph, in which ops that turned out to have no
    kernel on that GPU are ruled out there.
    """

    ran: Ran | str
    graph: OpGraph


def first_that_runs(
    traced: Callable[[Sequence[int]], list[TracedStep]], graph: OpGraph, topology: Topology, device: int
) -> FirstRun:
    """Try the assignments for profiling `device` one after another, until one runs."""
    reason = ""
    for _ in range(MOST_UNABLE):
        unable = None
        for assignment in attempts(graph, topology, device):
            try:
                return FirstRun(Ran(assignment, traced(assignment)), graph)
            except (*UNABLE, tf.errors.ResourceExhaustedError, tf.errors.InternalError) as error:
                reason = what_failed(error)
                if is_out_of_memory(error):
                    continue
                if not isinstance(error, UNABLE):
                    raise
                unable = _named(error, graph, [d == device for d in assignment])
                break
        here = topology.devices[device]
        if unable is None or here.kind == "cpu":
            break
        graph = without(graph, topology, [(unable, here.name)])
    return FirstRun(reason or _why_none(graph, topology, device), graph)


def _why_none(graph: OpGraph, topology: Topology, device: int) -> str:
    """Why there is no assignment to try."""
    lack = nearest_lack(graph, topology, device)
    return "none of it can run there" if lack is None else f"{lack}, as estimated"


def _named(error: tf.errors.OpError, graph: OpGraph, is_here: Sequence[bool]) -> str | None:
    """The first op that an error names and that `is_here` assigns to the profiled device; None if there is none."""
    named = [node.name for node in [error.node_def] if node is not None] + NODE.findall(error.message)
    return next((name for name in named if name in graph.index and is_here[graph.index[name]]), None)


def _medians(
    graph: OpGraph, topology: Topology, assignment: Sequence[int], steps: Sequence[TracedStep]
) -> dict[tuple[str, str], float | None]:
    """(op, its assigned device) -> seconds; None if TensorFlow ran the op elsewhere because it has no kernel there."""
    ran = {name: [step.cost_s(name) for step in steps] for name in topology.names}
    where = defaultdict(set)
    for step in steps:
        for row in step.ops:
            where[row.name].add(row.device)
    found: dict[tuple[str, str], float | None] = {}
    for op, d in zip(graph.ops, assignment, strict=True):
        at = topology.names[d]
        moved = op.name in where and at not in where[op.name]
        found[op.name, at] = None if moved else median(times.get(op.name, 0.0) for times in ran[at])
    return found


def with_costs(graph: OpGraph, costs: MappingABC[str, MappingABC[str, float]]) -> OpGraph:
    """The graph with every op's cost_s replaced; an op may then run wherever it has a cost. The fingerprint stays."""
    ops = tuple(replace(op, cost_s=dict(costs[op.name]), devices=None) for op in graph.ops)
    return replace(graph, ops=ops)
