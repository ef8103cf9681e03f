"""The phase of a training step that each node belongs to, from the graph's edges and TensorFlow's name scopes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from placer.trace.graph_def.node_def import source_of

GRADIENT_SCOPES = ("gradient_tape/", "gradients/")


def op_phases(graph_def: Any, outputs: Iterable[str]) -> dict[str, str]:
    """Node name -> "forward", "backward" or "update".

    forward: a node that the returned tensors `outputs` are computed from, in any scope (merged nodes keep one of their
    names); nodes that they only wait for do not count, because a micro-batch waits for the backward pass of an earlier
    one. backward: made by the gradient tape, or between two such nodes. update: after a gradient, and before none.
    A constant never counts as a gradient, because equal constants of all phases are merged under one name.
    """
    inputs = {node.name: [source_of(i) for i in node.input] for node in graph_def.node}
    returned = {source_of(tensor) for tensor in outputs}
    tensors = {node.name: [source_of(i) for i in node.input if not i.startswith("^")] for node in graph_def.node}
    forward = returned | _reach(returned, tensors)
    made = {node.name for node in graph_def.node if node.op != "Const" and _is_gradient(node.name)}
    gradients = made - forward
    consumers: dict[str, list[str]] = {name: [] for name in inputs}
    for name, sources in inputs.items():
        for source in sources:
            consumers[source].append(name)
    after, before = _reach(gradients, consumers), _reach(gradients, inputs)
    return {
        name: "forward" if name in forward else _phase(name in after, name in before, name in gradients)
        for name in inputs
    }


def _is_gradient(name: str) -> bool:
    return any(scope in name for scope in GRADIENT_SCOPES)


def _phase(after_gradient: bool, before_gradient: bool, is_gradient: bool) -> str:
    if is_gradient or (after_gradient and before_gradient):
        return "backward"
    return "update" if after_gradient else "forward"


def _reach(start: Iterable[str], steps: dict[str, list[str]]) -> set[str]:
    """Every node reachable from `start`; nodes of `start` only if they are reached again."""
    seen: set[str] = set()
    stack = list(start)
    while stack:
        for name in steps[stack.pop()]:
            if name not in seen:
                seen.add(name)
                stack.append(name)
    return seen
