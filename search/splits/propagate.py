"""Spreads a division over a step: each op, inputs first, is divided in the way that costs least where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

import tensorflow as tf

from placer.graph.op_flops import MULTIPLY_ADDS
from placer.splits.pieces import names_of, text_of
from placer.splits.plan import Division, SplitPlan
from placer.splits.rules.way import Cut, Joined, Way
from placer.splits.step_graph import StepGraph
from placer.trace.capture import tensor_bytes


@dataclass(frozen=True)
class Rates:
    """What ops and moving data cost. op_s: seconds of each op when it is whole. byte_s, latency_s: seconds per byte and
    per message, the work at both ends included.
    """

    op_s: Mapping[str, float]
    byte_s: float
    latency_s: float

    def transfer_s(self, size: float) -> float:
        """Seconds to send `size` bytes from one part's device to another's."""
        return self.latency_s + size * self.byte_s if size else 0.0


Held = Cut | Joined | None
"""How a tensor is kept: in parts that are concatenated, in parts that are combined, or whole."""


@dataclass
class Propagation:
    """Chooses the divisions of a step's ops. variables: node of a variable -> the axis along which it is divided.

    An op is divided only where one of its inputs is in parts already, or it multiplies, or it takes a step's input.
    """

    graph: StepGraph
    rates: Rates
    parts: int
    variables: Mapping[str, int] = field(default_factory=dict)
    held: dict[str, Held] = field(init=False, default_factory=dict)
    divisions: dict[str, Division] = field(init=False, default_factory=dict)

    def plan(self) -> SplitPlan:
        """The divisions of all ops."""
        for op in self.graph.order:
            chosen = self._chosen(op)
            if chosen is None:
                continue
            name, way = chosen
            self.divisions[op.name] = Division(name, self.parts)
            for i, kind in enumerate(way.outputs):
                self.held[text_of(op.name, i)] = kind
        return SplitPlan(self.divisions)

    def _chosen(self, op: Any) -> tuple[str, Way] | None:
        ways = {n: w for n, w in self.graph.ways(op.name).items() if w.extent >= self.parts * w.least}
        if op.type == "VarHandleOp":
            wanted = (Cut(self.variables[op.name]),) if op.name in self.variables else ()
            return next((item for item in ways.items() if item[1].outputs == wanted), None)
        texts = names_of(text for text in self.graph.nodes[op.name].input if not text.startswith("^"))
        handles = [(i, self.held.get(t)) for i, t in enumerate(texts) if self.graph.tensor(t).dtype == tf.resource]
        fitting = {n: w for n, w in ways.items() if all(w.inputs[i] == kept for i, kept in handles)}
        if not fitting:
            return None
        divided = any(kept is not None for _, kept in handles)
        if not (divided or self._may_begin(op, texts)):
            return None
        whole_s = inf if divided else self._whole_s(op, texts)
        name, way = min(fitting.items(), key=lambda item: self._way_s(op, texts, item[1]))
        return (name, way) if self._way_s(op, texts, way) < whole_s else None

    def _may_begin(self, op: Any, texts: tuple[str, ...]) -> bool:
        return op.type in MULTIPLY_ADDS or any(
            isinstance(self.held.get(text), Cut) or self._is_input(text) for text in texts
        )

    def _is_input(self, text: str) -> bool:
        return bool(self.graph.tensor(text).op.type == "Placeholder")

    def _whole_s(self, op: Any, texts: tuple[str, ...]) -> float:
        move_s = sum(self._moved_s(text, None) for text in texts if self.held.get(text) is not None)
        return self.rates.op_s.get(op.name, 0.0) + move_s

    def _way_s(self, op: Any, texts: tuple[str, ...], way: Way) -> float:
        move_s = sum(self._moved_s(text, cut) for text, cut in zip(texts, way.inputs, strict=True))
        return self.rates.op_s.get(op.name, 0.0) / self.parts + move_s

    def _moved_s(self, text: str, cut: Cut | None) -> float:
        """Seconds until each part has its share of a tensor, or the whole of it (cut = None)."""
        tensor, held = self.graph.tensor(text), self.held.get(text)
        if tensor.dtype == tf.resource or (held is None and tensor.op.type in ("Const", "Placeholder")):
            return 0.0
        size: float = tensor_bytes(tensor.shape, tensor.dtype)
        if isinstance(held, Cut) and cut is not None and cut.axis == held.axis:
            return 0.0
        if isinstance(held, Joined) and cut is None:
            return self.rates.transfer_s(size * (self.parts - 1))
        if isinstance(held, Cut) and cut is not None:
            size /= self.parts
        return self.rates.transfer_s(size * (self.parts - 1) / self.parts)
