"""Plans of splits by policy: which weights are divided and how, after which the rest of the step follows.

batch: no weight is divided, and each part takes its share of the examples (data parallelism). columns: all weights, by
what they put out (tensor parallelism). alternate: by turns by what they put out and by what they take in, which saves
every second exchange (Shoeybi et al. 2019). heavy: only weights that are larger than the tensors they work on, and the
rest of the step by examples (Krizhevsky 2014). heavy-alternate: these weights by turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from placer.splits.plan import SplitPlan
from placer.splits.rules.way import Cut
from placer.splits.step_graph import StepGraph
from search.splits.copying import with_copies
from search.splits.kin import is_used_in_parts, kin, may_be_divided, readers, variable_shape
from search.splits.propagate import Propagation, Rates

POLICIES = ("batch", "columns", "alternate", "heavy", "heavy-alternate")
WEIGHTED = {
    "Conv2D": ("out", "in"),
    "DepthwiseConv2dNative": ("channel", "channel"),
    "MatMul": ("columns", "inner"),
}
"""Type of an op with a weight as its second input -> the ways that divide the weight: by what it puts out, takes in."""
ROUNDS = 2  # in which variables of one dimension follow the tensors that they are used with


def candidates(
    graph: StepGraph, phases: Mapping[str, str | None], rates: Rates, parts: int
) -> Iterator[tuple[str, SplitPlan]]:
    """(policy, plan) of each policy that gives a plan of its own. phases: node -> its phase."""
    seen: list[SplitPlan] = []
    for policy in POLICIES:
        plan = plan_by(policy, graph, phases, rates, parts)
        if len(plan) and plan not in seen:
            seen.append(plan)
            yield policy, plan


def plan_by(policy: str, graph: StepGraph, phases: Mapping[str, str | None], rates: Rates, parts: int) -> SplitPlan:
    """The plan that one of POLICIES gives."""
    variables = dict(_weights(policy, graph, phases))
    plan = Propagation(graph, rates, parts, variables).plan()
    for _ in range(ROUNDS if variables else 0):
        more = _following(graph, plan, phases, variables, parts)
        if not more:
            break
        variables |= more
        plan = Propagation(graph, rates, parts, variables).plan()
    return with_copies(graph, plan, rates, parts)


def _weights(policy: str, graph: StepGraph, phases: Mapping[str, str | None]) -> Iterator[tuple[str, int]]:
    """(variable, axis) of all that a policy divides from the start."""
    if policy == "batch":
        return
    seen: set[str] = set()
    turn = 0
    for op in graph.order:
        weight = _weight(op) if phases.get(op.name) == "forward" else None
        if weight is None or weight.name in seen or ("heavy" in policy and not _is_heavy(op)):
            continue
        by_turns = WEIGHTED[op.type][turn % 2 if "alternate" in policy else 0]
        way = graph.ways(op.name).get(by_turns)
        cut = way.inputs[1] if way is not None else None
        if not isinstance(cut, Cut):
            continue
        together = kin(graph, weight.name)
        seen |= together
        if may_be_divided(graph, together, cut.axis):
            turn += 1
            yield from ((name, cut.axis) for name in together)


def _weight(op: Any) -> Any:
    """The VarHandleOp of an op's weight, None where it has none."""
    if op.type not in WEIGHTED or op.inputs[1].op.type != "ReadVariableOp":
        return None
    handle = op.inputs[1].op.inputs[0].op
    return handle if handle.type == "VarHandleOp" else None


def _is_heavy(op: Any) -> bool:
    """Whether an op's weight is larger than what it takes and puts out."""
    x, weight, out = (tensor.shape for tensor in (*op.inputs[:2], op.outputs[0]))
    sizes = [shape.num_elements() for shape in (x, weight, out)]
    return None not in sizes and sizes[1] > sizes[0] + sizes[2]


def _following(
    graph: StepGraph, plan: SplitPlan, phases: Mapping[str, str | None], divided: Mapping[str, int], parts: int
) -> dict[str, int]:
    """Whole variables of one dimension (biases, scales, statistics) that are only used in parts, with their axis."""
    found: dict[str, int] = {}
    for op in graph.order:
        if op.type != "VarHandleOp" or op.name in divided or op.name in found or not any(readers(op)):
            continue
        shape = variable_shape(op)
        if len(shape) != 1 or prod(shape) < parts:
            continue
        together = kin(graph, op.name)
        is_free = not together & divided.keys() and may_be_divided(graph, together, 0)
        if is_free and is_used_in_parts(graph, plan, together, phases):
            found |= dict.fromkeys(together, 0)
    return found
