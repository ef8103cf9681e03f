"""Plans of splits by policy. A policy says which weights are divided and how; the rest of the step follows from that.

batch: no weight is divided, and each part takes its share of the examples (data parallelism). columns: all weights are
divided along their output (tensor parallelism). alternate: weights are divided along their input if that is in parts,
else along their output, which saves every second exchange (Shoeybi et al. 2019). heavy: only weights larger than the
tensors they work on are divided, and the rest of the step by examples (Krizhevsky 2014). heavy-alternate: the same
weights as in heavy, divided as in alternate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from placer.splits.pieces import text_of
from placer.splits.plan import SplitPlan
from placer.splits.rules.way import Cut
from placer.splits.step_graph import StepGraph
from search.splits.copying import with_copies
from search.splits.propagate import Propagation, Rates, in_turn_s
from search.splits.variable_groups import is_used_in_parts, may_be_divided, readers, variable_group, variable_shape

POLICIES = ("batch", "columns", "alternate", "heavy", "heavy-alternate")
WEIGHTED = {
    "Conv2D": ("out", "in"),
    "DepthwiseConv2dNative": ("channel", "channel"),
    "MatMul": ("columns", "inner"),
}
"""Type of an op with a weight as its second input -> the ways to divide the weight: along its output, its input."""
ROUNDS = 2  # rounds in which variables of one dimension follow the tensors that they are used with


def candidates(
    graph: StepGraph, phases: Mapping[str, str | None], rates: Rates, parts: int
) -> Iterator[tuple[str, SplitPlan]]:
    """Yield (policy, plan) of each policy whose plan differs from those before it. phases: node -> its phase."""
    seen: list[SplitPlan] = []
    for policy in POLICIES:
        plan = plan_by(policy, graph, phases, rates, parts)
        if len(plan) and plan not in seen:
            seen.append(plan)
            yield policy, plan


def ranked(graph: StepGraph, phases: Mapping[str, str | None], rates: Rates, parts: int) -> list[tuple[str, SplitPlan]]:
    """Return `candidates`, the cheapest first by `in_turn_s`."""
    found = candidates(graph, phases, rates, parts)
    return sorted(found, key=lambda entry: in_turn_s(graph, rates, parts, entry[1]))


def plan_by(policy: str, graph: StepGraph, phases: Mapping[str, str | None], rates: Rates, parts: int) -> SplitPlan:
    """Return the plan of one of POLICIES."""
    variables = dict(_weights(policy, Propagation(graph, rates, parts), phases))
    plan = Propagation(graph, rates, parts, variables).plan()
    for _ in range(ROUNDS if variables else 0):
        more = _following(graph, plan, phases, variables, parts)
        if not more:
            break
        variables |= more
        plan = Propagation(graph, rates, parts, variables).plan()
    return with_copies(graph, plan, rates, parts)


def _weights(policy: str, state: Propagation, phases: Mapping[str, str | None]) -> Iterator[tuple[str, int]]:
    """Yield (variable, axis) of all variables that a policy divides from the start. state: with no op divided yet."""
    if policy == "batch":
        return
    seen: set[str] = set()
    for op in state.graph.order:
        weight = _weight(op) if phases.get(op.name) == "forward" else None
        name = _way(policy, op, state) if weight is not None else None
        if weight is None or name is None or weight.name in seen:
            state.visit(op)
            continue
        way = state.graph.ways(op.name)[name]
        axis = next(cut.axis for cut in way.inputs[1:] if isinstance(cut, Cut))
        together = variable_group(state.graph, weight.name)
        seen |= together
        if may_be_divided(state.graph, together, axis):
            state.take(op, name, way)
            yield from ((variable, axis) for variable in together)
        else:
            state.visit(op)


def _way(policy: str, op: Any, state: Propagation) -> str | None:
    """Return the policy's way to divide an op with its weight: along its input if an alternating policy finds that in
    parts, else along its output. None if the op is not divided.
    """
    if "heavy" in policy and not _is_heavy(op):
        return None
    ways = state.graph.ways(op.name)
    outward, inward = (ways.get(name) for name in WEIGHTED[op.type])
    if outward is None or inward is None:
        return None
    held, taken = state.held.get(text_of(op.inputs[0].op.name, op.inputs[0].value_index)), inward.inputs[0]
    is_in_parts = isinstance(held, Cut) and isinstance(taken, Cut) and held.axis == taken.axis
    return WEIGHTED[op.type]["alternate" in policy and is_in_parts]


def _weight(op: Any) -> Any:
    """Return the VarHandleOp of an op's weight; None if the op has no weight."""
    if op.type not in WEIGHTED or op.inputs[1].op.type != "ReadVariableOp":
        return None
    handle = op.inputs[1].op.inputs[0].op
    return handle if handle.type == "VarHandleOp" else None


def _is_heavy(op: Any) -> bool:
    """Whether an op's weight has more elements than its input and output together."""
    x, weight, out = (tensor.shape for tensor in (*op.inputs[:2], op.outputs[0]))
    sizes = [shape.num_elements() for shape in (x, weight, out)]
    return None not in sizes and sizes[1] > sizes[0] + sizes[2]


def _following(
    graph: StepGraph, plan: SplitPlan, phases: Mapping[str, str | None], divided: Mapping[str, int], parts: int
) -> dict[str, int]:
    """Return whole variables of one dimension (biases, scales, statistics) that are only used in parts -> axis 0."""
    found: dict[str, int] = {}
    for op in graph.order:
        if op.type != "VarHandleOp" or op.name in divided or op.name in found or not any(readers(op)):
            continue
        shape = variable_shape(op)
        if len(shape) != 1 or prod(shape) < parts:
            continue
        together = variable_group(graph, op.name)
        is_free = not together & divided.keys() and may_be_divided(graph, together, 0)
        if is_free and is_used_in_parts(graph, plan, together, phases):
            found |= dict.fromkeys(together, 0)
    return found
