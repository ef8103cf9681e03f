"""Dividing a graph by a plan: each op that the plan names becomes parts, and tensors are cut and joined where needed.

A part is an ordinary op on its share of the data. Tensors between two ops that are divided alike stay in parts. So data
is cut once where a region of such ops begins, and joined once where it ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import tensorflow as tf

from placer.errors import short
from placer.splits.exchanging import add_exchanging
from placer.splits.micro_batches import limit
from placer.splits.pieces import InParts, Pieces, names_of, text_of
from placer.splits.plan import Division, PlanError, SplitPlan
from placer.splits.rules.resources import ON_VARIABLES
from placer.splits.rules.way import Copied, Cut, Joined, Local, Own, Way, known_shapes, static
from placer.splits.step_graph import StepGraph
from placer.trace.graph_def.node_def import parse_input, set_inputs
from placer.trace.variable_parts import VariableParts

MOST_PARTS = 1024  # the most parts of an op, because each is a node of the graph


@dataclass(frozen=True)
class DividedGraph:
    """The result of `divide`."""

    graph_def: Any
    outputs: tuple[str, ...]  # the tensor for each of the `outputs` asked for
    writes: tuple[str, ...]
    variables: Mapping[str, VariableParts]  # node of a divided variable -> its parts
    part_of: Mapping[str, str]  # part -> the op that was divided
    part: Mapping[str, int]  # node of the new graph -> the part that it belongs to; without nodes for all parts
    sums: Mapping[str, str]  # node that adds up micro-batches -> the op that was divided
    is_limited: bool  # whether at most `in_flight` micro-batches of the plan are under way at once


def divide(graph: StepGraph, plan: SplitPlan, outputs: Sequence[str], writes: Sequence[str]) -> DividedGraph:
    """Divide a step's graph by `plan`. outputs: tensors that have to be whole at the end. writes: nodes that have to
    run.

    Raises PlanError if the plan names an op that the step lacks, a way that its rule lacks, more parts than there are
    elements, a variable whose ops are not all divided with it, or different numbers of micro-batches.
    """
    missing = [name for name in plan.divisions if name not in graph.nodes]
    if missing:
        raise PlanError(f"the plan divides {short(missing[0])}, which the step does not have; it is for another graph.")
    return _Divider(graph, plan).run(outputs, writes)


class _Divider:
    def __init__(self, graph: StepGraph, plan: SplitPlan) -> None:
        self.graph, self.plan = graph, plan
        self.micro_batches = plan.micro_batches
        self.pieces = Pieces(graph, in_turn=self.micro_batches is not None)
        self.nodes: dict[str, tuple[str, ...]] = {}  # op -> nodes of the new graph that replace it
        self.variables: dict[str, VariableParts] = {}
        self.part_of: dict[str, str] = {}

    def run(self, outputs: Sequence[str], writes: Sequence[str]) -> DividedGraph:
        for op in self.graph.order:
            self._add(op)
        whole = tuple(self.pieces.whole(name) for name in names_of(outputs))
        is_limited = self.plan.in_flight is not None and limit(
            self.pieces.graph_def, self.pieces.part, self.part_of.keys(), self.plan.in_flight
        )
        return DividedGraph(
            self.pieces.graph_def,
            tuple(name if ":" in name else f"{name}:0" for name in whole),
            tuple(part for write in writes for part in self.nodes[write]),
            self.variables,
            self.part_of,
            self.pieces.part,
            self.pieces.sums,
            is_limited,
        )

    def _add(self, op: Any) -> None:
        node, division = self.graph.nodes[op.name], self.plan.divisions.get(op.name)
        shapes = known_shapes(op)
        if division is not None:
            self._add_parts(op, node, division)
        elif shapes is not None:
            self.nodes[op.name] = ()
            for i, value in enumerate(shapes):
                self.pieces.renamed[text_of(op.name, i)] = self.pieces.constant(f"{op.name}/known_{i}", value)
        else:
            self.nodes[op.name] = (op.name,)
            inputs = [self._whole(op, text) for text in names_of(_data(node))]
            copy = self.pieces.graph_def.node.add()
            copy.CopyFrom(node)
            copy.attr.pop("_class", None)
            set_inputs(copy, [*inputs, *self._waits(self._controls(node))])

    def _whole(self, op: Any, text: str) -> str:
        if self.graph.tensor(text).dtype == tf.resource and text in self.pieces.parts:
            raise PlanError(
                f"op {short(op.name)} ({op.type}) takes the divided variable {short(parse_input(text)[0])} whole; "
                "divide it, too, or leave the variable whole."
            )
        return self.pieces.whole(text)

    def _add_parts(self, op: Any, node: Any, division: Division) -> None:
        way = self._way(op, division)
        texts = names_of(_data(node))
        taken = [(text, self._taken(way, text, cut)) for text, cut in zip(texts, way.inputs, strict=True)]
        bounds = self._bounds(op, way, division.parts, texts)
        sized = self._sized(op, way, bounds)
        inputs = [
            [sized[i].get(j) or self._input(op, text, cut, bounds, i) for j, (text, cut) in enumerate(taken)]
            for i in range(division.parts)
        ]
        waits = self._controls(node)
        if way.exchange is not None:
            names, outputs = add_exchanging(self.pieces, op, way, inputs, bounds, self._waits(waits))
        else:
            names = [
                self._add_part(op, node, i, [*one, *self._waits_of_part(op, waits, i, division.parts)])
                for i, one in enumerate(inputs)
            ]
            outputs = [[text_of(name, output) for output in range(len(way.outputs))] for name in names]
        self.nodes[op.name] = tuple(names)
        self.part_of |= dict.fromkeys(names, op.name)
        self._note_outputs(op, way, bounds, outputs)
        if op.type == "VarHandleOp":
            self._divide_variable(op, way, bounds, names)

    def _taken(self, way: Way, text: str, cut: Cut | Own | None) -> Cut | Own | Local | None:
        """Return how each part takes a tensor: as `cut`, or its own estimate if it has one and the op's parts need not
        compute the same values.
        """
        held = self.pieces.parts.get(text)
        if cut is None and held is not None and isinstance(held.kind, Local) and Copied() not in way.outputs:
            return held.kind
        return cut

    def _add_part(self, op: Any, node: Any, i: int, inputs: list[str]) -> str:
        part = self.pieces.graph_def.node.add()
        part.CopyFrom(node)
        part.name = self.pieces.fresh(f"{op.name}/part_{i}")
        part.attr.pop("_output_shapes", None)
        part.attr.pop("_class", None)  # a node whose _class names a divided op could not be imported
        set_inputs(part, inputs)
        self.pieces.part[part.name] = i
        return str(part.name)

    def _way(self, op: Any, division: Division) -> Way:
        way = self.graph.way(op.name, division.way)
        if way is None:
            ways = self.graph.ways(op.name)
            known = f"it can be divided along {', '.join(ways)}" if ways else "it has to stay whole"
            raise PlanError(f"op {short(op.name)} ({op.type}) has no rule for {short(division.way)}; {known}.")
        if division.parts > MOST_PARTS and way.extent >= MOST_PARTS:  # the error below is better for a smaller extent
            raise PlanError(
                f"op {short(op.name)} ({op.type}) is to be divided into {division.parts} parts; "
                f"ask for 2 to {MOST_PARTS}."
            )
        if division.parts < 2 or 0 < way.extent < division.parts * way.least:
            raise PlanError(
                f"op {short(op.name)} ({op.type}) cannot be divided into {division.parts} parts along "
                f"{short(division.way)}, which has {way.extent} elements; ask for 2 to {way.extent // way.least}."
            )
        return way

    def _bounds(self, op: Any, way: Way, parts: int, texts: Sequence[str]) -> tuple[int, ...]:
        """Return the bounds of the parts along the factor: those of an input that is in parts along it already, else of
        equal parts.
        """
        if not way.extent:
            return self._bounds_of_estimates(op, parts, texts)
        found = []
        for text, cut in zip(texts, way.inputs, strict=True):
            held = self.pieces.parts.get(text)
            if held is None or len(held.names) != parts:
                continue
            if isinstance(cut, Own) and isinstance(held.kind, Own):
                return held.bounds
            if (
                isinstance(cut, Cut)
                and isinstance(held.kind, Cut)
                and held.kind.axis == cut.axis
                and all(bound % cut.unit == 0 for bound in held.bounds)
            ):
                tensor = self.graph.tensor(text)
                size = float("inf") if tensor.dtype == tf.resource else tensor.shape.num_elements()
                found.append((size, tuple(bound // cut.unit for bound in held.bounds)))
        even = tuple(way.extent * i // parts for i in range(parts + 1))
        bounds = max(found, key=lambda one: one[0])[1] if found else even
        return bounds if min(b - a for a, b in pairwise(bounds)) >= way.least else even

    def _bounds_of_estimates(self, op: Any, parts: int, texts: Sequence[str]) -> tuple[int, ...]:
        """Return the bounds of the parts' examples, for an op that works on each part's estimates."""
        found = (self.pieces.parts.get(text) for text in texts)
        bounds = {held.bounds for held in found if held and isinstance(held.kind, Local) and len(held.names) == parts}
        if not bounds:
            raise PlanError(
                f"op {short(op.name)} ({op.type}) is to work on statistics of each part's own, and takes none of "
                f"{parts} parts; leave it whole."
            )
        return min(bounds)

    def _input(self, op: Any, text: str, cut: Cut | Own | Local | None, bounds: Sequence[int], i: int) -> str:
        if isinstance(cut, Own):
            return self._own(op, text, cut, bounds, i)
        if isinstance(cut, Local):
            return self._estimate(op, text, bounds, i)
        is_handle = self.graph.tensor(text).dtype == tf.resource
        if cut is None:
            return self._whole(op, text) if is_handle else self.pieces.whole(text, i)
        scaled = [bound * cut.unit for bound in bounds]
        held = self.pieces.parts.get(text)
        if is_handle and (held is None or not held.is_cut(cut.axis, scaled)):
            raise PlanError(
                f"op {short(op.name)} ({op.type}) is divided, but its variable {short(parse_input(text)[0])} is not "
                "divided in the same way."
            )
        return self.pieces.share(text, cut.axis, scaled, i)

    def _estimate(self, op: Any, text: str, bounds: Sequence[int], i: int) -> str:
        """Return the name of part i's own estimate. The op must be divided by examples in the same shares."""
        held = self.pieces.parts[text]
        if [bound * held.bounds[-1] for bound in bounds] != [bound * bounds[-1] for bound in held.bounds]:
            raise PlanError(
                f"op {short(op.name)} ({op.type}) takes {short(parse_input(text)[0])}, of which each part has its own, "
                "and is divided otherwise than that; divide both by examples, into as many parts."
            )
        return held.names[i]

    def _own(self, op: Any, text: str, cut: Own, bounds: Sequence[int], i: int) -> str:
        held = self.pieces.parts.get(text)
        if held is None or held.kind != cut or held.bounds != tuple(bounds):
            raise PlanError(
                f"op {short(op.name)} ({op.type}) is divided, but {short(parse_input(text)[0])}, which goes with it, "
                "is not divided in the same way."
            )
        return held.names[i]

    def _sized(self, op: Any, way: Way, bounds: Sequence[int]) -> list[dict[int, str]]:
        """Return for each part data input -> the constant with the part's size."""
        found = []
        for i in range(len(bounds) - 1):
            values = {size.argument: static(op, size.argument).copy() for size in way.sizes}
            for size in way.sizes:
                values[size.argument][size.position] = (bounds[i + 1] - bounds[i]) * size.unit
            found.append(
                {j: self.pieces.constant(f"{op.name}/part_{i}/size_{j}", value) for j, value in values.items()}
            )
        return found

    def _note_outputs(self, op: Any, way: Way, bounds: Sequence[int], outputs: Sequence[Sequence[str]]) -> None:
        for output, kind in enumerate(way.outputs):
            tensor = text_of(op.name, output)
            parts = [made[output] for made in outputs]
            if kind is None:
                self.pieces.renamed[tensor] = parts[0]
            elif isinstance(kind, Copied):
                self.pieces.parts[tensor] = InParts(kind, tuple(parts))
            elif isinstance(kind, Joined):
                weighted = self.pieces.shares(tensor, parts, bounds) if kind.mean else parts
                self.pieces.parts[tensor] = InParts(kind, tuple(weighted))
            elif isinstance(kind, Local):
                own = self.pieces.estimates(tensor, parts, bounds) if kind.scaled else parts
                self.pieces.parts[tensor] = InParts(kind, tuple(own), tuple(bounds))
            else:
                unit = kind.unit if isinstance(kind, Cut) else 1
                self.pieces.parts[tensor] = InParts(kind, tuple(parts), tuple(bound * unit for bound in bounds))

    def _divide_variable(self, op: Any, way: Way, bounds: Sequence[int], names: Sequence[str]) -> None:
        (kind,) = way.outputs
        assert isinstance(kind, Cut)
        found = VariableParts(kind.axis, tuple(bounds), tuple(names))
        new = {node.name: node for node in self.pieces.graph_def.node[-len(names) :]}
        for i, name in enumerate(names):
            new[name].attr["shape"].shape.dim[kind.axis].size = bounds[i + 1] - bounds[i]
            new[name].attr["shared_name"].s = name.encode()
        self.variables[op.name] = found

    def _controls(self, node: Any) -> list[str]:
        """Return the ops for which a node waits."""
        return [parse_input(text)[0] for text in node.input if text.startswith("^")]

    def _waits(self, names: Sequence[str]) -> list[str]:
        """Return control inputs on all nodes that replace these ops."""
        return [f"^{part}" for name in names for part in self.nodes[name]]

    def _waits_of_part(self, op: Any, waits: Sequence[str], i: int, parts: int) -> list[str]:
        """Return the control inputs of part i. It waits for the same part of an op with as many parts, if the parts of
        both ops share no state; else for all nodes that replace the op.
        """
        found = []
        for name in waits:
            done = self.nodes[name]
            alone = len(done) == parts and self._is_apart(op) and self._is_apart(self.graph.op(name))
            found += [f"^{part}" for part in (done[i : i + 1] if alone else done)]
        return found

    def _is_apart(self, op: Any) -> bool:
        """Whether the parts of a divided op share no state: the op has none, or each part has its own variables."""
        handles = [tensor for tensor in op.inputs if tensor.dtype == tf.resource]
        own = all(text_of(tensor.op.name, tensor.value_index) in self.pieces.parts for tensor in handles)
        return own if op.type in ON_VARIABLES else not op.op_def.is_stateful


def _data(node: Any) -> list[str]:
    return [text for text in node.input if not text.startswith("^")]
