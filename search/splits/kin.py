"""Which variables have to be divided alike, and along which axis those of one dimension want to be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from placer.splits.plan import SplitPlan
from placer.splits.rules.elementwise import elementwise
from placer.splits.rules.resources import UPDATES
from placer.splits.rules.table import RULES
from placer.splits.rules.way import Cut
from placer.splits.step_graph import StepGraph


def kin(graph: StepGraph, variable: str) -> frozenset[str]:
    """The variables that are updated together with one, itself included: those of its shape that element-wise ops of
    this shape connect with it.
    """
    shape = variable_shape(graph.op(variable))
    found, stack, seen = {variable}, [graph.op(variable)], {variable}
    while stack:
        for near in _near(stack.pop(), shape):
            if near.name not in seen:
                seen.add(near.name)
                stack.append(near)
                if near.type == "VarHandleOp":
                    found.add(near.name)
    return frozenset(found)


def variable_shape(handle: Any) -> list[int]:
    """The shape of the variable of a VarHandleOp."""
    return [int(dim.size) for dim in handle.get_attr("shape").dim]


def readers(handle: Any) -> Iterator[Any]:
    """The ops that read a variable."""
    yield from (user for tensor in handle.outputs for user in tensor.consumers() if user.type == "ReadVariableOp")


def wanted_axis(
    graph: StepGraph, plan: SplitPlan, variables: frozenset[str], phases: Mapping[str, str | None]
) -> int | None:
    """The axis along which all ops of forward and backward pass that use one of these whole variables cut what they
    read; None where they do not agree, or need the whole.
    """
    wanted = {
        axis
        for name in variables
        for read in readers(graph.op(name))
        for axis in _wanted(graph, plan, read.outputs[0], phases)
    }
    return wanted.pop() if len(wanted) == 1 else None


def _wanted(graph: StepGraph, plan: SplitPlan, tensor: Any, phases: Mapping[str, str | None]) -> Iterator[int | None]:
    for user in tensor.consumers():
        if phases.get(user.name) == "update":
            continue
        arguments = [i for i, taken in enumerate(user.inputs) if taken is tensor]
        division, ways = plan.divisions.get(user.name), graph.ways(user.name)
        if division is not None:
            yield from (_axis(ways[division.way].inputs[i]) for i in arguments)
        else:
            yield from _wanted_before(graph, plan, user, arguments, phases)


def _wanted_before(
    graph: StepGraph, plan: SplitPlan, user: Any, arguments: list[int], phases: Mapping[str, str | None]
) -> Iterator[int | None]:
    """What an op that is whole itself would want if its users' wishes were met."""
    if len(user.outputs) != 1 or not graph.ways(user.name):
        yield None
        return
    for after in _wanted(graph, plan, user.outputs[0], phases):
        fitting = [
            way for way in graph.ways(user.name).values() if after is not None and _axis(way.outputs[0]) == after
        ]
        yield from ((_axis(way.inputs[i]) for way in fitting[:1] for i in arguments) if fitting else (None,))


def _axis(cut: Any) -> int | None:
    return cut.axis if isinstance(cut, Cut) else None


def _near(op: Any, shape: list[int]) -> Iterator[Any]:
    """The ops beside `op` that work on tensors of a shape element by element, or on handles of such variables."""
    taken = [tensor.op for tensor in op.inputs if _fits(tensor, shape)]
    used = [user for tensor in op.outputs if _fits(tensor, shape) for user in tensor.consumers()]
    yield from (near for near in (*taken, *used) if _spreads(near, shape))


def _spreads(op: Any, shape: list[int]) -> bool:
    if op.type == "VarHandleOp" or op.type == "ReadVariableOp" or op.type in UPDATES:
        return True
    return RULES.get(op.type) is elementwise and all(_fits(tensor, shape) for tensor in op.outputs)


def _fits(tensor: Any, shape: list[int]) -> bool:
    if tensor.dtype == tf.resource:
        return tensor.op.type == "VarHandleOp" and variable_shape(tensor.op) == shape
    return tensor.shape.rank is not None and tensor.shape.as_list() == shape
