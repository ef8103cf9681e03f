"""Variables that have to be divided alike, and variables that are only used in parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from placer.splits.pieces import text_of
from placer.splits.plan import SplitPlan
from placer.splits.rules.elementwise import elementwise
from placer.splits.rules.resources import UPDATES
from placer.splits.rules.table import RULES
from placer.splits.rules.way import Cut, Way
from placer.splits.step_graph import StepGraph


def variable_group(graph: StepGraph, variable: str) -> frozenset[str]:
    """Return the variables that are updated together with `variable`, itself included: variables of its shape that
    element-wise ops of this shape connect with it.
    """
    return frozenset(op.name for op in _around(graph, variable) if op.type == "VarHandleOp")


def tensors_like(graph: StepGraph, variables: Mapping[str, int]) -> dict[str, int]:
    """Return text of each tensor that is used element by element with one of these variables -> the variable's axis.

    variables: node of a variable -> the axis along which it is divided.
    """
    found: dict[str, int] = {}
    done: set[str] = set()
    for name, axis in variables.items():
        if name in done:
            continue
        shape = variable_shape(graph.op(name))
        for op in _around(graph, name):
            done.add(op.name)
            for tensor in (*op.inputs, *op.outputs):
                if tensor.dtype != tf.resource and _fits(tensor, shape):
                    found[text_of(tensor.op.name, tensor.value_index)] = axis
    return found


def _around(graph: StepGraph, variable: str) -> list[Any]:
    """Return the ops that element-wise ops of a variable's shape connect with it, the variable's own op first."""
    shape = variable_shape(graph.op(variable))
    found, seen = [graph.op(variable)], {variable}
    for op in found:  # `found` grows in this loop
        for near in _near(op, shape):
            if near.name not in seen:
                seen.add(near.name)
                found.append(near)
    return found


def may_be_divided(graph: StepGraph, variables: Iterable[str], axis: int) -> bool:
    """Whether every op on the handles of these variables has a rule to divide them along `axis`. A branch or a loop has
    no such rule, because it takes a variable whole.
    """
    handles = [tensor for name in variables for tensor in graph.op(name).outputs]
    return all(
        any(_takes(way, user, handle, axis) for way in graph.ways(user.name).values())
        for handle in handles
        for user in handle.consumers()
    )


def variable_shape(handle: Any) -> list[int]:
    """Return the shape of the variable of a VarHandleOp."""
    return [int(dim.size) for dim in handle.get_attr("shape").dim]


def readers(handle: Any) -> Iterator[Any]:
    """Yield the ops that read a variable."""
    yield from (user for tensor in handle.outputs for user in tensor.consumers() if user.type == "ReadVariableOp")


def is_used_in_parts(
    graph: StepGraph, plan: SplitPlan, variables: Iterable[str], phases: Mapping[str, str | None]
) -> bool:
    """Whether all ops of the forward and backward pass that use these whole variables could take the values cut along
    axis 0, and at least one of them is a divided op.
    """
    stack = [(read.outputs[0], 0) for name in variables for read in readers(graph.op(name))]
    seen = set(stack)
    found = False
    while stack:
        tensor, axis = stack.pop()
        for user in tensor.consumers():
            if phases.get(user.name) == "update":
                continue
            division = plan.divisions.get(user.name)
            if division is not None:
                way = graph.way(user.name, division.way)
                if way is None or not _takes(way, user, tensor, axis):
                    return False
                found = True
                continue
            after = _passed_on(graph, user, tensor, axis)
            if after is None:
                return False
            if after not in seen:
                seen.add(after)
                stack.append(after)
    return found


def _passed_on(graph: StepGraph, user: Any, tensor: Any, axis: int) -> tuple[Any, int] | None:
    """Return (output, axis of its cut) of a whole op, if the op took a tensor cut along `axis`. None if the op needs
    the whole tensor, or if its output has more or fewer elements, because then its parts would have to exchange data.
    """
    if len(user.outputs) != 1 or user.outputs[0].shape.num_elements() != tensor.shape.num_elements():
        return None
    kinds = (way.outputs[0] for way in graph.ways(user.name).values() if _takes(way, user, tensor, axis))
    return next(((user.outputs[0], kind.axis) for kind in kinds if isinstance(kind, Cut)), None)


def _takes(way: Way, user: Any, tensor: Any, axis: int) -> bool:
    """Whether an op divided in this way takes a tensor cut along `axis` in every input that it is."""
    cuts = [cut for cut, taken in zip(way.inputs, user.inputs, strict=True) if taken is tensor]
    return all(isinstance(cut, Cut) and cut.axis == axis for cut in cuts)


def _near(op: Any, shape: list[int]) -> Iterator[Any]:
    """Yield the neighbours of `op` that work element by element on tensors of `shape`, or on variables of `shape`."""
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
