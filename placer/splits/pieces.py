"""The tensors of a graph while it is divided: which are whole, which are in parts, and the ops that convert them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import tensorflow as tf

from placer.errors import short
from placer.splits.plan import PlanError
from placer.splits.rules.way import Copied, Cut, Joined, Local, Own, may_be_averaged
from placer.splits.step_graph import StepGraph

MOST_COPIES = 4
"""The most parts for which each part gets its own copy of a joined tensor, so that devices send each other one message
instead of two."""


@dataclass(frozen=True)
class InParts:
    """A tensor in parts.

    bounds: where the parts begin and end, along the axis for a Cut, along the factor for Own and Local. Empty for
    Joined, whose parts are added or compared, and for Copied, where each part is the whole tensor.
    """

    kind: Cut | Joined | Own | Copied | Local
    names: tuple[str, ...]
    bounds: tuple[int, ...] = ()

    def is_cut(self, axis: int, bounds: Sequence[int]) -> bool:
        """Whether the tensor is cut along `axis` at exactly `bounds`."""
        return isinstance(self.kind, Cut) and self.kind.axis == axis and self.bounds == tuple(bounds)


class Pieces:
    """A new GraphDef under construction, and for each tensor of the old graph the tensors that stand for it.

    in_turn: whether parts are micro-batches. Then joined tensors are not copied for each part, and sums are added up as
    parts come, so that only one gradient is kept.
    """

    def __init__(self, graph: StepGraph, in_turn: bool = False) -> None:
        self.graph, self.in_turn = graph, in_turn
        self.graph_def = tf.compat.v1.GraphDef(library=graph.graph_def.library, versions=graph.graph_def.versions)
        self.parts: dict[str, InParts] = {}  # tensor -> its parts
        self.renamed: dict[str, str] = {}  # tensor -> another tensor of the same value
        self.part: dict[str, int] = {}  # node -> the part that it belongs to
        self.sums: dict[str, str] = {}  # node that adds up micro-batches -> the op whose outputs it adds
        self._names = set(graph.nodes)
        self._made: dict[tuple[Any, ...], str] = {}
        self._means: dict[str, list[str]] = {}

    def add(self, name: str, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add a node under `name`, or a similar name if that is taken. Return the node's name."""
        node = self.graph_def.node.add(name=self.fresh(name), op=op, input=inputs)
        for key, value in attributes.items():
            node.attr[key].CopyFrom(value)
        return str(node.name)

    def fresh(self, name: str) -> str:
        """Reserve and return a new node name: `name`, or `name` with a number."""
        found, n = name, 0
        while found in self._names:
            n += 1
            found = f"{name}_{n}"
        self._names.add(found)
        return found

    def constant(self, name: str, value: Any) -> str:
        """Add a constant. Return its name."""
        proto = tf.make_tensor_proto(value)
        tensor = tf.compat.v1.AttrValue(tensor=proto)
        return self.add(name, "Const", [], dtype=tf.compat.v1.AttrValue(type=proto.dtype), value=tensor)

    def whole(self, tensor: str, copy: int = 0) -> str:
        """Return the name of the whole tensor, joined if it is in parts. copy: the part of an op that takes it."""
        found = self.parts.get(tensor)
        if found is None:
            return self.renamed.get(tensor, tensor)
        if isinstance(found.kind, Copied):
            return found.names[copy] if copy < len(found.names) else found.names[0]
        copies = 1 if self.in_turn or len(found.names) > MOST_COPIES else len(found.names)
        copy = copy if copies > 1 else 0
        key = (tensor, "whole", copy)
        if key not in self._made:
            made = self._joined(tensor, f"{_stem(tensor)}/whole_{copy}", found.kind, found.names)
            if copies > 1:
                self.part[made] = copy
            self._made[key] = made
        return self._made[key]

    def share(self, tensor: str, axis: int, bounds: Sequence[int], i: int) -> str:
        """Return the name of part i of a tensor cut along `axis` at `bounds`."""
        found = self.parts.get(tensor)
        if found is not None and found.is_cut(axis, bounds):
            return found.names[i]
        key = (tensor, axis, tuple(bounds), i)
        if key not in self._made:
            self._made[key] = self._cut(tensor, found, axis, bounds[i], bounds[i + 1], i)
        return self._made[key]

    def _cut(self, tensor: str, found: InParts | None, axis: int, begin: int, end: int, i: int) -> str:
        name = f"{_stem(tensor)}/axis{axis}_{begin}"
        if found is None:
            node = self.graph.nodes[_node(tensor)]
            if node.op == "Const":
                value = tf.make_ndarray(node.attr["value"].tensor)
                return self.constant(name, value[(slice(None),) * axis + (slice(begin, end),)])
            piece = self._slice(tensor, self.renamed.get(tensor, tensor), name, axis, begin, end)
            if self.in_turn:
                self.part[piece] = i
            return piece
        if isinstance(found.kind, Copied | Local) or (isinstance(found.kind, Cut) and found.kind.axis == axis):
            piece = self._slice(tensor, self.whole(tensor, i), name, axis, begin, end)
            self.part[piece] = i
            return piece
        pieces = [self._slice(tensor, part, f"{name}_of_{j}", axis, begin, end) for j, part in enumerate(found.names)]
        self.part.update({piece: j for j, piece in enumerate(pieces)})
        made = self._joined(tensor, name, found.kind, pieces)
        self.part[made] = i
        return made

    def _slice(self, tensor: str, source: str, name: str, axis: int, begin: int, end: int) -> str:
        rank = self.graph.tensor(tensor).shape.rank
        begins, sizes = np.zeros(rank, np.int32), np.full(rank, -1, np.int32)
        begins[axis], sizes[axis] = begin, end - begin
        arguments = [source, self.constant(f"{name}/begin", begins), self.constant(f"{name}/size", sizes)]
        return self.add(name, "Slice", arguments, T=self.type_of(tensor), Index=_type(tf.int32))

    def _joined(self, tensor: str, name: str, kind: Cut | Joined | Own | Local, parts: Sequence[str]) -> str:
        if isinstance(kind, Own):
            op = self.graph.nodes[_node(tensor)]
            raise PlanError(
                f"op {short(op.name)} ({op.op}) is divided, but an op that goes with it is not divided in the same "
                "way; divide both, or leave both whole."
            )
        if isinstance(kind, Cut):
            axis = self.constant(f"{name}/axis", np.int32(kind.axis))
            count = tf.compat.v1.AttrValue(i=len(parts))
            return self.add(name, "ConcatV2", [*parts, axis], T=self.type_of(tensor), N=count, Tidx=_type(tf.int32))
        if isinstance(kind, Local):
            return self._joined(tensor, name, Joined("sum"), self._weighted(tensor))
        if kind.by == "sum" and self.in_turn:
            return self._added_up(tensor, name, parts)
        if kind.by == "sum":
            return self.add(name, "AddN", parts, T=self.type_of(tensor), N=tf.compat.v1.AttrValue(i=len(parts)))
        op = {"max": "Maximum", "min": "Minimum"}[kind.by]
        found = parts[0]
        for part in parts[1:]:
            found = self.add(name, op, [found, part], T=self.type_of(tensor))
        return found

    def _added_up(self, tensor: str, name: str, parts: Sequence[str]) -> str:
        found = parts[0]
        for i, part in enumerate(parts[1:], 1):
            found = self.add(
                name if i + 1 == len(parts) else f"{name}_{i}", "AddV2", [found, part], T=self.type_of(tensor)
            )
            self.part[found], self.sums[found] = i, _node(tensor)
        return found

    def _weighted(self, tensor: str) -> list[str]:
        """Return each part's estimate of a tensor, multiplied by the part's share of the examples."""
        if tensor not in self._means:
            self._means[tensor] = self.shares(tensor, self.parts[tensor].names, self.parts[tensor].bounds)
        return self._means[tensor]

    def estimates(self, tensor: str, parts: Sequence[str], bounds: Sequence[int]) -> list[str]:
        """Return each part's share of a sum over examples, divided by the part's share of the examples."""
        scales = [bounds[-1] / (b - a) for a, b in pairwise(bounds)]
        return [self._scaled(tensor, part, "estimate", scales[i], i) for i, part in enumerate(parts)]

    def shares(self, tensor: str, parts: Sequence[str], bounds: Sequence[int]) -> list[str]:
        """Return the mean over each part, multiplied by the part's share of the whole."""
        scales = [(b - a) / bounds[-1] for a, b in pairwise(bounds)]
        return [self._scaled(tensor, part, "weighted", scales[i], i) for i, part in enumerate(parts)]

    def _scaled(self, tensor: str, part: str, name: str, scale: float, i: int) -> str:
        """Add a node that multiplies part i of a tensor by `scale`. Return its name.

        Raises PlanError for a type that has no means. A scale below 1 would become the integer 0.
        """
        dtype = self.graph.tensor(tensor).dtype
        if not may_be_averaged(dtype):
            op = self.graph.nodes[_node(tensor)]
            raise PlanError(
                f"op {short(op.name)} ({op.op}) gives {dtype.name}, of which there is no mean over parts; leave it "
                "whole, or divide all that takes it."
            )
        number = np.array(scale).astype(dtype.as_numpy_dtype)
        constant = self.constant(f"{_stem(part)}/{name}_by", number)
        found = self.add(f"{_stem(part)}/{name}", "Mul", [part, constant], T=self.type_of(tensor))
        self.part[found] = i
        return found

    def type_of(self, tensor: str) -> Any:
        """Return the type of a tensor as an attribute."""
        return _type(self.graph.tensor(tensor).dtype)


def _type(dtype: tf.DType) -> Any:
    return tf.compat.v1.AttrValue(type=dtype.as_datatype_enum)


def _stem(tensor: str) -> str:
    """Return a node name that identifies the tensor."""
    node, _, output = tensor.partition(":")
    return f"{node}/{output}" if output not in ("", "0") else node


def _node(tensor: str) -> str:
    return tensor.partition(":")[0]


def text_of(node: str, output: int) -> str:
    """Return the text of a node's output in the inputs of a GraphDef."""
    return f"{node}:{output}" if output else node


def names_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Return tensor names without ":0"."""
    return tuple(text.removesuffix(":0") for text in texts)
