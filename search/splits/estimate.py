"""The costs of the ops of a divided step, estimated from the profile of the whole ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from placer.graph.op_graph import Op, OpGraph
from placer.splits.plan import SplitPlan
from placer.splits.rules.copies import COPIES
from placer.splits.rules.elementwise import BINARY, GRADIENTS, UNARY
from placer.trace.op_counts.flops import MULTIPLY_ADDS

LAUNCH_S = 8e-6  # the part of an op's cost that each part has in full
MOVED_BYTES_PER_S = 1e10  # the rate at which a device reads and writes, if the profile does not tell
LARGE_BYTES = 1 << 18  # an element-wise op that moves at least this much tells the rate
MOVERS = frozenset({*BINARY, *GRADIENTS})
FOLLOWERS = frozenset({*UNARY, "BiasAdd", "Add", "AddV2"})
"""Ops that TensorFlow fuses with a product or convolution before them; the fused kernel is profiled under the last."""


def estimated(whole: OpGraph, divided: OpGraph, plan: SplitPlan) -> OpGraph:
    """Return `divided` with costs. whole: the result of `unfused`.

    A part costs its share of the whole op and one launch; a copy costs as much as the op. An op that cuts or joins
    tensors costs a launch, and its reads and writes at the rate of the profiled element-wise ops.
    """
    devices = sorted({device for op in whole.ops for device in op.cost_s})
    rates = {device: _rate(whole, device) for device in devices}
    moved = _moved_bytes(divided)
    ops = [
        replace(op, cost_s=_costs(op, whole, plan, rates, size)) for op, size in zip(divided.ops, moved, strict=True)
    ]
    return replace(divided, ops=tuple(ops))


def unfused(whole: OpGraph) -> OpGraph:
    """Return a profiled graph in which products and convolutions have the time of the kernels they were fused into.

    The op under whose name a fused kernel was profiled keeps one launch of it. Otherwise dividing the product would
    seem to gain nothing.
    """
    cost_s = [dict(op.cost_s) for op in whole.ops]
    for v, op in enumerate(whole.ops):
        last = _fused_into(whole, v) if op.type in MULTIPLY_ADDS and not any(op.cost_s.values()) else None
        if last is None:
            continue
        for device, seconds in whole.ops[last].cost_s.items():
            own_s = min(seconds, LAUNCH_S)
            cost_s[v][device] = seconds - own_s
            cost_s[last][device] = own_s
    ops = [replace(op, cost_s=costs) for op, costs in zip(whole.ops, cost_s, strict=True)]
    return replace(whole, ops=tuple(ops))


def _fused_into(graph: OpGraph, v: int) -> int | None:
    """Return the op under whose name a product was profiled; None if it cannot be told."""
    while True:
        near = [edge.dst for edge in graph.out_edges[v] if graph.ops[edge.dst].type in FOLLOWERS]
        if len(near) != 1:
            return None
        (v,) = near
        if any(graph.ops[v].cost_s.values()):
            return v


def _costs(op: Op, whole: OpGraph, plan: SplitPlan, rates: Mapping[str, float], moved_bytes: int) -> dict[str, float]:
    if op.part_of in whole.index:
        costs, division = whole.ops[whole.index[op.part_of]].cost_s, plan.divisions[op.part_of]
        parts = 1 if division.way == COPIES else division.parts
        return {device: _share(cost_s, parts) for device, cost_s in costs.items()}
    if op.name in whole.index:
        return dict(whole.ops[whole.index[op.name]].cost_s)
    return {device: LAUNCH_S + moved_bytes / rate for device, rate in rates.items()}


def _share(cost_s: float, parts: int) -> float:
    launch_s = min(cost_s, LAUNCH_S)
    return launch_s + (cost_s - launch_s) / parts


def _rate(graph: OpGraph, device: str) -> float:
    """Bytes per second that a device reads and writes in element-wise ops on large tensors."""
    found = [
        moved / op.cost_s[device]
        for op, moved in zip(graph.ops, _moved_bytes(graph), strict=True)
        if op.type in MOVERS and moved >= LARGE_BYTES and op.cost_s.get(device)
    ]
    return median(found) if found else MOVED_BYTES_PER_S


def _moved_bytes(graph: OpGraph) -> Sequence[int]:
    """Bytes that each op reads and writes; a slice reads only as much as it writes."""
    found = []
    for op, inputs, outputs in zip(graph.ops, graph.in_edges, graph.out_edges, strict=True):
        written = sum({edge.output_index: edge.edge_bytes for edge in outputs}.values())
        found.append(written + (written if op.type == "Slice" else sum(edge.edge_bytes for edge in inputs)))
    return found
