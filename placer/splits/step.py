"""A captured step with ops divided by a plan, which can be profiled, searched and placed like any other step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.errors import short
from placer.graph.op_graph import Op
from placer.splits.divide import DividedGraph, divide
from placer.splits.local_statistics import with_whole_statistics
from placer.splits.plan import PlanError, SplitPlan
from placer.splits.step_graph import StepGraph
from placer.trace.build_graph import build_graph
from placer.trace.capture import Captured
from placer.trace.graph_def.access_order import AccessOrder
from placer.trace.variable_parts import VariableParts


@dataclass(frozen=True)
class SplitStep:
    """A step divided by a plan. is_limited: as in DividedGraph."""

    plan: SplitPlan
    captured: Captured
    is_limited: bool


def split_step(
    captured: Captured, plan: SplitPlan, graph: StepGraph | None = None, *, stored: bool = True, limited: bool = False
) -> SplitStep:
    """Return the step with the parts as ops. Its divided variables are new variables with the current values.

    graph: that of `captured`, if it was made before. stored: whether new variables are made; if not, each part of a
    divided variable is only described, by a tf.TensorSpec. limited: refuse micro-batches that need each other. Raises
    PlanError.
    """
    made = divide(graph or StepGraph(captured.graph_def), plan, captured.output_names, captured.writes)
    if limited and plan.in_flight is not None and not made.is_limited:
        raise PlanError("micro-batches of this step need each other, so that all of them are under way at once.")
    _check_order(captured, made)
    variables = _variables(captured, made.variables, stored=stored)
    content = captured.graph.content
    op_graph = build_graph(captured.name, made.graph_def, variables, made.outputs, captured.host_ops, content)
    in_turn = plan.micro_batches is not None
    op_graph = replace(op_graph, ops=tuple(_known(op, made, in_turn) for op in op_graph.ops))
    divided = replace(
        captured,
        graph_def=made.graph_def,
        variables=variables,
        output_names=made.outputs,
        writes=made.writes,
        graph=op_graph,
        undivided=captured,
        divided=made.variables,
        with_whole_statistics=(lambda: _with_whole_statistics(captured, plan)) if plan.is_local else None,
    )
    return SplitStep(plan, divided, made.is_limited)


def _check_order(captured: Captured, made: DividedGraph) -> None:
    """Raise PlanError if an order of ops in the whole step is lost: it led through shapes, which are constants now."""
    order = AccessOrder(made.graph_def)
    if (pair := order.first_open()) is not None:
        first, second = map(short, pair)
        raise PlanError(f"nothing would order {first} and {second}, which use one variable.")
    if order.has_loose_check() and not captured.has_loose_check:
        raise PlanError("nothing would order a check and a write that have an order in the whole step.")


def with_variables(step: SplitStep) -> SplitStep:
    """The step with new variables, which have the current values, for parts of variables that were only described."""
    captured = step.captured
    variables = _variables(captured.whole, captured.divided, stored=True)
    return replace(step, captured=replace(captured, variables=variables))


def _variables(captured: Captured, divided: Mapping[str, VariableParts], *, stored: bool) -> dict[str, Any]:
    """Return the variable of each node, with new variables for parts. divided: as in `Captured`. stored: as in
    `split_step`.
    """
    variables: dict[str, Any] = {}
    for node, variable in captured.variables.items():
        parts = divided.get(node)
        if parts is None:
            variables[node] = variable
            continue
        value = variable.numpy() if stored else None
        for i, part in enumerate(parts.nodes):
            if value is None:
                variables[part] = tf.TensorSpec(parts.shape(variable.shape.as_list(), i), variable.dtype, part)
                continue
            with tf.device(tf_internals.variables.handle_of(variable).device):
                variables[part] = tf.Variable(value[parts.index(i)], trainable=variable.trainable)
    return variables


def _with_whole_statistics(captured: Captured, plan: SplitPlan) -> Captured:
    graph = StepGraph(captured.graph_def)
    return split_step(captured, with_whole_statistics(graph, plan), graph, stored=False).captured


def _known(op: Op, made: DividedGraph, in_turn: bool) -> Op:
    """Return an op with the facts of it as a part. in_turn: whether parts are micro-batches. All micro-batches of an op
    share a device, as do the ops that add up micro-batches of one op.
    """
    part, part_of = made.part.get(op.name), made.part_of.get(op.name)
    if not in_turn:
        return replace(op, part=part, part_of=part_of)
    return replace(op, micro_batch=part, part_of=part_of, colocate=op.colocate or part_of or made.sums.get(op.name))
