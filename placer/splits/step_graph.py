"""A captured step's GraphDef with the facts for dividing it: an order of its ops, shapes, and the ways of each op."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple

import tensorflow as tf

from placer.splits.rules.table import way_called, ways_of
from placer.splits.rules.way import Way, Ways
from placer.trace.build_graph import tensor_bytes


class TensorFacts(NamedTuple):
    """The facts of a tensor that are often needed. made_by: the type of its op."""

    is_handle: bool
    size_bytes: int
    made_by: str


class StepGraph:
    """A GraphDef, imported once. inputs: nodes of what a call gives the step, not of tensors that it captured."""

    def __init__(self, graph_def: Any, inputs: Iterable[str] | None = None) -> None:
        """inputs: as the attribute; None = all Placeholders."""
        self.graph_def = graph_def
        placeholders = (node.name for node in graph_def.node if node.op == "Placeholder")
        self.inputs = frozenset(placeholders if inputs is None else inputs)
        self.tf_graph = tf.Graph()
        with self.tf_graph.as_default():
            tf.graph_util.import_graph_def(graph_def, name="")
        self._ways: dict[str, Ways] = {}
        self._called: dict[tuple[str, str], Way | None] = {}
        self._tensors: dict[str, Any] = {}
        self._facts: dict[str, TensorFacts] = {}

    @cached_property
    def nodes(self) -> dict[str, Any]:
        """Return node name -> NodeDef."""
        return {node.name: node for node in self.graph_def.node}

    @cached_property
    def order(self) -> tuple[Any, ...]:
        """Return all ops in topological order, by their data and control inputs."""
        done: dict[Any, None] = {}
        for last in self.tf_graph.get_operations():
            stack = [last]
            while stack:
                op = stack[-1]
                left = [before for before in self._before(op) if before not in done] if op not in done else []
                if left:
                    stack += left
                else:
                    done.setdefault(stack.pop())
        return tuple(done)

    def op(self, name: str) -> Any:
        """Return the tf.Operation of a node."""
        return self.tf_graph.get_operation_by_name(name)

    def tensor(self, name: str) -> Any:
        """Return the tf.Tensor of an input text or tensor name."""
        if name not in self._tensors:
            self._tensors[name] = self.tf_graph.get_tensor_by_name(name if ":" in name else f"{name}:0")
        return self._tensors[name]

    def facts(self, name: str) -> TensorFacts:
        """Return the facts of the tensor of an input text or tensor name. An unknown dimension counts as 1."""
        if name not in self._facts:
            tensor = self.tensor(name)
            size = tensor_bytes(tensor.shape, tensor.dtype)
            self._facts[name] = TensorFacts(tensor.dtype == tf.resource, size, tensor.op.type)
        return self._facts[name]

    def ways(self, name: str) -> Ways:
        """Return the ways in which a node can be divided."""
        if name not in self._ways:
            self._ways[name] = ways_of(self.op(name))
        return self._ways[name]

    def way(self, name: str, called: str) -> Way | None:
        """Return the way that plans name `called`; None if the node has no such way."""
        key = name, called
        if key not in self._called:
            self._called[key] = way_called(self.op(name), called, self.ways(name))
        return self._called[key]

    @staticmethod
    def _before(op: Any) -> list[Any]:
        return [*(t.op for t in op.inputs), *op.control_inputs]
