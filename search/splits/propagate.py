"""Spreading a division over a step: ops are visited producers first, and each is divided in its cheapest way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from placer.splits.pieces import names_of, text_of
from placer.splits.plan import Division, SplitPlan
from placer.splits.rules.copies import COPIES
from placer.splits.rules.way import Copied, Cut, Joined, Local, Own, Way
from placer.splits.step_graph import StepGraph
from placer.trace.op_counts.flops import MULTIPLY_ADDS
from search.splits.variable_groups import tensors_like


@dataclass(frozen=True)
class Rates:
    """The costs of ops and of moving data. op_s: seconds of each whole op. byte_s, latency_s: seconds per byte and per
    message, including the work at both ends.
    """

    op_s: Mapping[str, float]
    byte_s: float
    latency_s: float

    def transfer_s(self, size: float) -> float:
        """Seconds to send `size` bytes from one part's device to another part's device."""
        return self.latency_s + size * self.byte_s if size else 0.0


Held = Cut | Joined | Own | Copied | Local | None
"""How a tensor is held: in parts that are concatenated (Cut), combined (Joined) or kept by each part (Own, Local); as a
copy by each part (Copied); or whole, once (None)."""


def in_turn_s(graph: StepGraph, rates: Rates, parts: int, plan: SplitPlan) -> float:
    """Seconds of a plan's step with part i on device i, if ops run one after another and the parts of an op together.
    Use it to rank plans; it is not a prediction.
    """
    state = Propagation(graph, rates, parts)
    return sum(state.take_planned(op, plan.divisions.get(op.name)) for op in graph.order)


@dataclass
class Propagation:
    """The choice of divisions for a step's ops. variables: node of a variable -> the axis along which it is divided.

    An op is divided only if one of its inputs is in parts already, if it multiplies, if it takes an input of the step,
    or if all ops that take its output take it in parts.
    """

    graph: StepGraph
    rates: Rates
    parts: int
    variables: Mapping[str, int] = field(default_factory=dict)
    held: dict[str, Held] = field(init=False, default_factory=dict)
    divisions: dict[str, Division] = field(init=False, default_factory=dict)
    sought: Mapping[str, int] = field(init=False)  # tensors used with divided variables -> the axis of these

    def __post_init__(self) -> None:
        self.sought = tensors_like(self.graph, self.variables)

    def plan(self) -> SplitPlan:
        """Choose and return the divisions of all ops."""
        for op in self.graph.order:
            self.visit(op)
        for op in reversed(self.graph.order):
            wanted = self._wanted(op)
            if wanted is not None:
                self.divisions[op.name] = Division(wanted, self.parts)
        return SplitPlan(self.divisions)

    def take_planned(self, op: Any, division: Division | None) -> float:
        """Divide an op as planned, or leave it whole. Return its seconds, including the moving of its inputs."""
        texts = self._texts(op)
        way = None if division is None else self.graph.way(op.name, division.way)
        if division is None or way is None:
            return self._whole_s(op, texts)
        seconds = self.rates.op_s.get(op.name, 0.0) if division.way == COPIES else self._way_s(op, texts, way)
        self.take(op, division.way, way)
        return seconds

    def visit(self, op: Any) -> None:
        """Divide an op in its cheapest way, or leave it whole. Its producers must have been visited before."""
        chosen = self._chosen(op)
        if chosen is not None:
            self.take(op, *chosen)

    def take(self, op: Any, name: str, way: Way) -> None:
        """Divide an op in the way `way`, called `name`."""
        self.divisions[op.name] = Division(name, self.parts)
        for i, kind in enumerate(way.outputs):
            self.held[text_of(op.name, i)] = kind

    def _wanted(self, op: Any) -> str | None:
        """Return the way to divide a whole op whose output is only taken in parts, if that costs less than cutting the
        output. An example is the gradient of a mean, which repeats a few numbers for all examples.
        """
        if op.name in self.divisions or len(op.outputs) != 1:
            return None
        (output,) = op.outputs
        users, texts = output.consumers(), self._texts(op)
        if not users or any(user.name not in self.divisions for user in users):
            return None
        cuts = {cut for user in users for cut, taken in self._taken(user) if taken is output}
        ways = {n: w for n, w in self._fitting(op, texts).items() if cuts == {w.outputs[0]} and None not in cuts}
        whole_s = self._whole_s(op, texts) + sum(self._moved_s(text_of(op.name, 0), cut) for cut in cuts)
        return next((name for name, way in ways.items() if self._way_s(op, texts, way) < whole_s), None)

    def _taken(self, op: Any) -> Iterator[tuple[Cut | Own | None, Any]]:
        """Return (how it is taken, tensor) of each input of a divided op."""
        return zip(self.graph.ways(op.name)[self.divisions[op.name].way].inputs, op.inputs, strict=True)

    def _texts(self, op: Any) -> tuple[str, ...]:
        return names_of(text for text in self.graph.nodes[op.name].input if not text.startswith("^"))

    def _fitting(self, op: Any, texts: tuple[str, ...]) -> Mapping[str, Way]:
        """Return the ways that have enough elements, and that can take each tensor as it is held."""
        ways = {n: w for n, w in self.graph.ways(op.name).items() if w.extent >= self.parts * w.least}
        return {name: way for name, way in ways.items() if all(map(self._fits, texts, way.inputs))}

    def _chosen(self, op: Any) -> tuple[str, Way] | None:
        texts = self._texts(op)
        fitting = self._fitting(op, texts)
        if op.type == "VarHandleOp":
            wanted = (Cut(self.variables[op.name]),) if op.name in self.variables else ()
            return next((item for item in fitting.items() if item[1].outputs == wanted), None)
        if not fitting:
            return None
        divided = any(self._is_bound(text) and self.held.get(text) is not None for text in texts)
        if not (divided or self._may_begin(op, texts)):
            return None
        whole_s = inf if divided else self._whole_s(op, texts)
        name, way = min(fitting.items(), key=lambda item: self._way_s(op, texts, item[1]))
        return (name, way) if self._way_s(op, texts, way) < whole_s else None

    def _is_bound(self, text: str) -> bool:
        """Whether an op has to take a tensor as it is held: a variable's handle, or a tensor that each part keeps."""
        return self.graph.facts(text).is_handle or isinstance(self.held.get(text), Own)

    def _fits(self, text: str, cut: Cut | Own | None) -> bool:
        return self.held.get(text) == cut if self._is_bound(text) or isinstance(cut, Own) else True

    def _may_begin(self, op: Any, texts: tuple[str, ...]) -> bool:
        return op.type in MULTIPLY_ADDS or any(
            isinstance(self.held.get(text), Cut) or self._is_input(text) for text in texts
        )

    def _is_input(self, text: str) -> bool:
        return self.graph.facts(text).made_by == "Placeholder"

    def _whole_s(self, op: Any, texts: tuple[str, ...]) -> float:
        move_s = sum(self._moved_s(text, None) for text in texts if self.held.get(text) is not None)
        return self.rates.op_s.get(op.name, 0.0) + move_s + self._sought_s(op, (None,) * len(op.outputs))

    def _way_s(self, op: Any, texts: tuple[str, ...], way: Way) -> float:
        move_s = sum(self._moved_s(text, cut) for text, cut in zip(texts, way.inputs, strict=True))
        sent = way.exchange.sent_bytes if way.exchange is not None else 0
        exchange_s = self.rates.transfer_s(sent * (self.parts - 1))
        own_s = self.rates.op_s.get(op.name, 0.0) / self.parts
        return own_s + move_s + exchange_s + self._sought_s(op, way.outputs)

    def _sought_s(self, op: Any, outputs: Sequence[Held]) -> float:
        """Seconds to cut outputs, held as in `outputs`, like the divided variables with which they are used."""
        found = 0.0
        for tensor, held in zip(op.outputs, outputs, strict=True):
            axis = self.sought.get(text_of(op.name, tensor.value_index))
            if axis is not None:
                size_bytes = self.graph.facts(text_of(op.name, tensor.value_index)).size_bytes
                found += self._converted_s(size_bytes, held, Cut(axis))
        return found

    def _moved_s(self, text: str, cut: Cut | Own | None) -> float:
        """Seconds until each part has its share of a tensor, or the whole tensor (cut = None)."""
        facts, held = self.graph.facts(text), self.held.get(text)
        if self._is_bound(text) or (held is None and facts.made_by in ("Const", "Placeholder")):
            return 0.0
        return self._converted_s(facts.size_bytes, held, cut)

    def _converted_s(self, size: float, held: Held, cut: Cut | Own | None) -> float:
        """Seconds to convert a tensor of `size` bytes from how it is held to how it is cut."""
        if isinstance(held, Cut) and isinstance(cut, Cut) and cut.axis == held.axis:
            return 0.0
        if isinstance(held, Joined) and cut is None:
            return self.rates.transfer_s(size * (self.parts - 1))
        if isinstance(held, Cut) and cut is not None:
            size /= self.parts
        return self.rates.transfer_s(size * (self.parts - 1) / self.parts)
