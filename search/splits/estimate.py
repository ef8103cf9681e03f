"""What the ops of a divided step will cost, estimated from the profile of the whole ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from placer.graph.op_graph import Op, OpGraph
from placer.splits.plan import SplitPlan

LAUNCH_S = 8e-6  # of an op's cost, which each part has in full
MOVED_BYTES_PER_S = 4e9  # at which a device cuts and joins tensors


def estimated(whole: OpGraph, divided: OpGraph, plan: SplitPlan, whole_of: Mapping[str, str]) -> OpGraph:
    """`divided` with costs. whole: as profiled. whole_of: node of the divided step -> op of the whole one.

    A part costs its share of the whole op and one launch; what cuts and joins tensors costs what it moves.
    """
    devices = sorted({device for op in whole.ops for device in op.cost_s})
    moved = [sum(edge.edge_bytes for edge in edges) for edges in divided.in_edges]
    ops = [
        replace(op, cost_s=_costs(op, whole, plan, whole_of, devices, size))
        for op, size in zip(divided.ops, moved, strict=True)
    ]
    return OpGraph(divided.name, tuple(ops), divided.edges)


def _costs(
    op: Op, whole: OpGraph, plan: SplitPlan, whole_of: Mapping[str, str], devices: list[str], moved_bytes: int
) -> Mapping[str, float]:
    if op.name in whole.index:
        return whole.ops[whole.index[op.name]].cost_s
    origin = whole_of.get(op.name, "")
    division = plan.divisions.get(origin)
    if division is not None and op.whole_name == origin and origin in whole.index:
        costs = whole.ops[whole.index[origin]].cost_s
        return {device: _share(cost_s, division.parts) for device, cost_s in costs.items()}
    return dict.fromkeys(devices, LAUNCH_S + moved_bytes / MOVED_BYTES_PER_S)


def _share(cost_s: float, parts: int) -> float:
    launch_s = min(cost_s, LAUNCH_S)
    return launch_s + (cost_s - launch_s) / parts
