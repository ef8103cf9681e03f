"""What the ops of a divided step will cost, estimated from the profile of the whole ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from placer.graph.op_graph import Op, OpGraph
from placer.splits.plan import SplitPlan

LAUNCH_S = 8e-6  # of an op's cost, which each part has in full
MOVED_BYTES_PER_S = 4e9  # at which a device cuts and joins tensors


def estimated(whole: OpGraph, divided: OpGraph, plan: SplitPlan) -> OpGraph:
    """`divided` with costs. whole: as profiled.

    A part costs its share of the whole op and one launch; what cuts and joins tensors costs what it moves.
    """
    devices = sorted({device for op in whole.ops for device in op.cost_s})
    moved = [sum(edge.edge_bytes for edge in edges) for edges in divided.in_edges]
    ops = [
        replace(op, cost_s=_costs(op, whole, plan, devices, size)) for op, size in zip(divided.ops, moved, strict=True)
    ]
    return OpGraph(divided.name, tuple(ops), divided.edges)


def _costs(op: Op, whole: OpGraph, plan: SplitPlan, devices: list[str], moved_bytes: int) -> Mapping[str, float]:
    if op.part_of in whole.index:
        costs, parts = whole.ops[whole.index[op.part_of]].cost_s, plan.divisions[op.part_of].parts
        return {device: _share(cost_s, parts) for device, cost_s in costs.items()}
    if op.name in whole.index:
        return whole.ops[whole.index[op.name]].cost_s
    return dict.fromkeys(devices, LAUNCH_S + moved_bytes / MOVED_BYTES_PER_S)


def _share(cost_s: float, parts: int) -> float:
    launch_s = min(cost_s, LAUNCH_S)
    return launch_s + (cost_s - launch_s) / parts
