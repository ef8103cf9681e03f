"""Runs one op whole and in parts, and compares.

In parts means twice: as a reader of the rule would do it by hand with NumPy, at any bounds, and by `divide`.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import tensorflow as tf

from placer.splits.divide import divide
from placer.splits.plan import Division, SplitPlan
from placer.splits.rules.way import Cut, Joined, Way
from placer.splits.step_graph import StepGraph

Array = np.ndarray[Any, Any]
IT = "it"
"""The name of the op under test."""


@dataclass(frozen=True)
class Fixed:
    """An input that is a constant of the graph."""

    value: Any


@dataclass(frozen=True)
class Stored:
    """An input that is a variable with this value."""

    value: Array


@dataclass(frozen=True)
class Case:
    """An op with its inputs: arrays are fed, Fixed and Stored as they say, and a list becomes several inputs.

    exact: parts give the same bits. ignored: outputs with no value to compare.
    """

    type: str
    inputs: Sequence[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    exact: bool = False
    ignored: tuple[int, ...] = ()
    tolerance: float = 1e-5


@dataclass
class Graph:
    """A graph and the values of its sources."""

    graph_def: Any
    feeds: dict[str, Array]
    variables: dict[str, Array]
    outputs: Sequence[str]
    writes: Sequence[str] = ()

    @classmethod
    def of(cls, case: Case, unknown: str = "") -> Graph:
        """The graph of one case. unknown: what the graph does not say of inputs that are fed, as `_known` has it."""
        feeds: dict[str, Array] = {}
        variables: dict[str, Array] = {}

        def source(value: Any) -> Any:
            if isinstance(value, list):
                return [source(one) for one in value]
            if isinstance(value, Fixed):
                return tf.constant(value.value)
            name = f"source_{len(feeds) + len(variables)}"
            if isinstance(value, Stored):
                variables[name] = value.value
                dtype = tf.as_dtype(value.value.dtype)
                return tf.raw_ops.VarHandleOp(dtype=dtype, shape=value.value.shape, shared_name=name, name=name)
            feeds[name] = value
            return tf.compat.v1.placeholder(value.dtype, _known(value.shape, unknown), name)

        with tf.Graph().as_default() as graph:
            raw = getattr(tf.raw_ops, case.type)
            arguments = [name for name in inspect.signature(raw).parameters if name not in case.attributes]
            taken = dict(zip(arguments, [source(value) for value in case.inputs], strict=False))
            raw(**taken, **case.attributes, name=IT)
            outputs = [tensor.name for tensor in graph.get_operation_by_name(IT).outputs]
        return cls(graph.as_graph_def(), feeds, variables, outputs, () if outputs else (IT,))

    def value(self, step: StepGraph, text: str) -> Array:
        """The value of a source."""
        name = text.partition(":")[0]
        if name in self.feeds or name in self.variables:
            return (self.feeds | self.variables)[name]
        return np.asarray(tf.make_ndarray(step.nodes[name].attr["value"].tensor))


def _known(shape: tuple[int, ...], unknown: str) -> Any:
    hidden = {"": 0, "first axis": 1, "all axes": len(shape)}.get(unknown)
    return None if hidden is None else [None] * min(hidden, len(shape)) + list(shape[hidden:])


@dataclass(frozen=True)
class Result:
    """What one run gives: the outputs, and the variables afterwards."""

    outputs: list[Array]
    after: dict[str, Array]


def run(graphs: Sequence[Graph]) -> list[Result]:
    """Run graphs beside each other."""
    feeds, before, fetched, after = {}, [], [], []
    with tf.Graph().as_default() as together:
        for i, graph in enumerate(graphs):
            for node in graph.graph_def.node:
                if node.op == "VarHandleOp":
                    node.attr["shared_name"].s = f"{i}/{node.name}".encode()
            tf.graph_util.import_graph_def(graph.graph_def, name=f"g{i}")
            fetched.append([[f"g{i}/{name}" for name in graph.outputs], [f"g{i}/{name}" for name in graph.writes]])
            feeds |= {f"g{i}/{name}:0": value for name, value in graph.feeds.items()}
            handles = {name: together.get_tensor_by_name(f"g{i}/{name}:0") for name in graph.variables}
            for name, value in graph.variables.items():
                before.append(tf.raw_ops.AssignVariableOp(resource=handles[name], value=tf.constant(value)))
            after.append(
                {n: tf.raw_ops.ReadVariableOp(resource=h, dtype=graph.variables[n].dtype) for n, h in handles.items()}
            )
    with tf.compat.v1.Session(graph=together, config=_plain()) as session:
        if before:
            session.run(before)
        outputs = [one[0] for one in session.run(fetched, feeds)]
        afterwards = session.run(after) if before else after
    return [Result(*one) for one in zip(outputs, afterwards, strict=True)]


def _plain() -> Any:
    """No optimizer: it costs more than these graphs, and folds what is to be tested."""
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    return config


class Checker:
    """One case. Ways in which parts exchange something are left out; their tests are with the rule."""

    def __init__(self, case: Case, unknown: str = "") -> None:
        self.case = case
        self.graph = Graph.of(case, unknown)
        self.step = StepGraph(self.graph.graph_def)
        self.ways = {name: way for name, way in self.step.ways(IT).items() if way.exchange is None}

    def check(self, name: str, bounds: Sequence[int]) -> None:
        """Compare with the whole op what it does divided by hand at `bounds`, and by `divide` into as many parts."""
        way, parts = self.ways[name], len(bounds) - 1
        divided, variables = self.divided(name, parts)
        by_hand = [self._part(way, a, b) for a, b in pairwise(bounds)]
        whole, result, *results = run([self.graph, divided, *by_hand])
        joined = {
            n: np.concatenate([result.after[part] for part in there.nodes], there.axis)
            for n, there in variables.items()
        }
        self._compare(way, whole, Result(result.outputs, result.after | joined), f"{name} in {parts} parts")
        self._compare(way, whole, self._put_together(way, results, bounds), f"{name} at {bounds}")

    @property
    def _texts(self) -> list[str]:
        return list(self.step.nodes[IT].input)

    def _part(self, way: Way, a: int, b: int) -> Graph:
        """The graph of the part [a, b)."""
        nodes = tf.compat.v1.GraphDef(versions=self.graph.graph_def.versions)
        part = Graph(nodes, {}, {}, self.graph.outputs, self.graph.writes)
        for i, (text, cut) in enumerate(zip(self._texts, way.inputs, strict=True)):
            value, node = self.graph.value(self.step, text), nodes.node.add()
            node.CopyFrom(self.step.nodes[text.partition(":")[0]])
            if cut is not None:
                value = value[(slice(None),) * cut.axis + (slice(a * cut.unit, b * cut.unit),)]
            for size in way.sizes:
                if size.argument == i:
                    value = value.copy()
                    value[size.position] = (b - a) * size.unit
            if node.op == "Const":
                node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
            else:
                node.attr["shape"].CopyFrom(tf.compat.v1.AttrValue(shape=tf.TensorShape(value.shape).as_proto()))
                (part.variables if node.op == "VarHandleOp" else part.feeds)[node.name] = value
        nodes.node.add().CopyFrom(self.step.nodes[IT])
        return part

    def _put_together(self, way: Way, parts: list[Result], bounds: Sequence[int]) -> Result:
        shares = [(b - a) / bounds[-1] for a, b in pairwise(bounds)]
        outputs = [_joined(kind, [part.outputs[i] for part in parts], shares) for i, kind in enumerate(way.outputs)]
        cuts = dict(zip(self._texts, way.inputs, strict=True))
        after = {
            name: _joined(cuts[name], [part.after[name] for part in parts], shares) for name in self.graph.variables
        }
        return Result(outputs, after)

    def divided(self, name: str, parts: int) -> tuple[Graph, Any]:
        """The graph that `divide` makes, and the parts of its variables."""
        plan = {IT: Division(name, parts)}
        for tensor, cut in zip(self.step.op(IT).inputs, self.ways[name].inputs, strict=True):
            if tensor.dtype == tf.resource and cut is not None:
                plan[tensor.op.name] = Division(f"axis{cut.axis}", parts)
        made = divide(self.step, SplitPlan(plan), self.graph.outputs, self.graph.writes)
        variables = {}
        for whole, value in self.graph.variables.items():
            there = made.variables.get(whole)
            variables |= {n: value[there.index(i)] for i, n in enumerate(there.nodes)} if there else {whole: value}
        return Graph(made.graph_def, self.graph.feeds, variables, made.outputs, made.writes), made.variables

    def _compare(self, way: Way, whole: Result, other: Result, where: str) -> None:
        for i, (kind, a, b) in enumerate(zip(way.outputs, whole.outputs, other.outputs, strict=True)):
            if i not in self.case.ignored:
                exact = self.case.exact and not (isinstance(kind, Joined) and kind.by == "sum")
                assert self._is_same(a, b, exact), f"{self.case}: {where}: output {i}: {a} became {b}"
        for name, a in whole.after.items():
            b = other.after[name]
            assert self._is_same(a, b, self.case.exact), f"{self.case}: {where}: variable {name}: {a} became {b}"

    def _is_same(self, one: Array, other: Array, exact: bool) -> bool:
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        if exact or one.dtype.kind in "biu":
            return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"))
        return difference(one, other) <= self.case.tolerance


def difference(one: Array, other: Array) -> float:
    """The largest difference relative to the largest finite number; NaN and infinities have to agree.

    Inputs are about 1; so a number below 1 is what is left of larger ones, and these rule its error.
    """
    wide = np.complex128 if one.dtype.kind == "c" else np.float64
    one, other = one.astype(wide), other.astype(wide)
    finite = np.isfinite(one)
    if not np.array_equal(finite, np.isfinite(other)) or not np.array_equal(
        one[~finite], other[~finite], equal_nan=True
    ):
        return float("inf")
    largest = max(1.0, float(np.abs(one[finite]).max(initial=0.0)))
    return float(np.abs(one[finite] - other[finite]).max(initial=0.0)) / largest


def _joined(kind: Cut | Joined | None, parts: list[Array], shares: list[float]) -> Array:
    if kind is None:
        return parts[0]
    if isinstance(kind, Cut):
        return np.concatenate(parts, kind.axis)
    if kind.mean:
        parts = [(part * share).astype(part.dtype) for part, share in zip(parts, shares, strict=True)]
    combine = {"sum": np.add, "max": np.maximum, "min": np.minimum}[kind.by]
    total = parts[0]
    for part in parts[1:]:
        total = combine(total, part).astype(total.dtype)
    return total
