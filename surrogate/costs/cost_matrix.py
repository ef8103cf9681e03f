"""The cost of each op on each device, as a matrix."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError, listed, plain, short
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology

Costs = NDArray[np.float64]


def cost_matrix(graph: OpGraph, topology: Topology) -> Costs:
    """`cost_s[v, d]`: seconds op v takes on device d, shape [ops, devices]; infinity where it cannot run.

    Raises BadInputError for an op that no device of the topology can run.
    """
    devices = topology.devices
    named = {name for op in graph.ops for name in (*op.cost_s, *(op.devices or ()))}
    # Without its speed, a device that no op names differs from others of its kind in nothing that an op's cost reads.
    first = {(d.kind, d.name if d.name in named else None): d for d in reversed(devices)}
    column = {key: i for i, key in enumerate(first)}
    of = [column[d.kind, d.name if d.name in named else None] for d in devices]
    unscaled = [replace(d, speed=1.0) for d in first.values()]
    costs = np.array([[op.cost_on(d) for d in unscaled] for op in graph.ops], dtype=np.float64)[:, of]
    costs = np.ascontiguousarray(costs / [d.speed for d in devices])
    nowhere = np.isinf(costs).all(axis=1)
    if nowhere.any():
        op = graph.ops[int(nowhere.argmax())]
        given = listed(sorted(op.cost_s)) or "no device"
        allowed = "" if op.devices is None else f" and may run on {listed(op.devices) or 'no device'}"
        raise BadInputError(
            f"graph {short(graph.name)}: op {short(op.name)} ({plain(op.type)}) can run on none of "
            f"{listed(topology.names)}: it has a cost on {given}{allowed}. "
            "Give it a cost_s for one of these devices or kinds."
        )
    return costs


def with_cost_matrix(graph: OpGraph, topology: Topology, costs: Costs) -> OpGraph:
    """Return the graph with `costs`, [ops, devices] seconds, as its cost_s by device name. Infinite costs are left out.

    A cost_s is multiplied by the device's speed here, because reading it divides by the speed. Raises BadInputError as
    Topology.check_names.
    """
    topology.check_names()
    devices = topology.devices
    rows = ({d.name: s * d.speed for d, s in zip(devices, row, strict=True) if s < math.inf} for row in costs.tolist())
    ops = tuple(replace(op, cost_s=row) for op, row in zip(graph.ops, rows, strict=True))
    return replace(graph, ops=ops)


def mean_cost_s(costs: Costs) -> NDArray[np.float64]:
    """[ops] seconds, the mean over the devices that can run each op. costs: [ops, devices]."""
    runs = np.isfinite(costs)
    mean_s: NDArray[np.float64] = np.where(runs, costs, 0.0).sum(axis=1) / runs.sum(axis=1)
    return mean_s
