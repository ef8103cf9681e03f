"""Micro-batches in a divided graph: whether they need each other, and the waits that let only a few be under way.

TensorFlow's executor starts every op that is ready. Without waits, all micro-batches would hold their activations at
once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

from placer.trace.graph_def.node_def import source_of
from placer.trace.op_counts.flops import MULTIPLY_ADDS

LAYERS = frozenset({*MULTIPLY_ADDS, "ResourceGather"})
"""Ops with weights, whose inputs or outputs are kept for the backward pass."""


def limit(graph_def: Any, turn: Mapping[str, int], parts: Collection[str], in_flight: int) -> bool:
    """Let the layers of micro-batch i begin after micro-batch i - in_flight has ended. Returns False if micro-batches
    need each other, so that none can end before all have begun.

    graph_def: producers first; gets the waits. turn: node -> its micro-batch. parts: the nodes that are parts of ops.
    """
    if not _are_independent(graph_def, turn, parts):
        return False
    nodes = {node.name: node for node in graph_def.node}
    layers: Collection[str] = [name for name in parts if nodes[name].op in LAYERS] or parts
    batches = defaultdict[int, _MicroBatch](_MicroBatch)
    for node in graph_def.node:
        if node.name in turn:
            batches[turn[node.name]].add(node.name, list(map(source_of, node.input)))
    for i in range(in_flight, len(batches)):
        waits = [f"^{name}" for name in batches[i - in_flight].last(layers)]
        for name in batches[i].first(layers):
            nodes[name].input.extend(waits)
    return True


def _are_independent(graph_def: Any, turn: Mapping[str, int], parts: Collection[str]) -> bool:
    """Whether every part of an op needs only tensors of its own micro-batch, or of none."""
    needs: dict[str, int] = {}  # node -> its own micro-batch and those that it needs, as bits
    for node in graph_def.node:
        own = 1 << turn[node.name] if node.name in turn else 0
        needs[node.name] = own
        for text in node.input:
            needs[node.name] |= needs[source_of(text)]
        if node.name in parts and needs[node.name] != own:
            return False
    return True


@dataclass
class _MicroBatch:
    """The nodes of one micro-batch, and which of them come first and last. A step may have several towers, which begin
    with inputs of their own; a short tower ends long before the others.
    """

    starts: list[str] = field(default_factory=list)  # nodes that need no other node of this micro-batch
    origins: dict[str, int] = field(default_factory=dict)  # node -> the starts that lead to it, as bits
    depth: dict[str, int] = field(default_factory=dict)  # node -> length of the longest chain before it here
    users: dict[int, str] = field(default_factory=dict)  # origins -> deepest node that has them, or a source with them

    def add(self, name: str, sources: Sequence[str]) -> None:
        """Add a node that takes or waits for `sources`. Those of this micro-batch must have been added before."""
        own = [source for source in sources if source in self.origins]
        if not own:
            self.starts.append(name)
        taken = {self.origins[source] for source in own}
        self.origins[name] = reduce(or_, taken) if taken else 1 << (len(self.starts) - 1)
        self.depth[name] = max((self.depth[source] + 1 for source in own), default=0)
        for origins in {self.origins[name], *taken}:
            if self.depth[name] >= self.depth[self.users.get(origins, name)]:
                self.users[origins] = name

    def first(self, layers: Collection[str]) -> Iterator[str]:
        """The starts that lead to the first layer of any tower; while these wait, no layer can begin."""
        needed = reduce(or_, self._towers(layers), 0)
        return (name for i, name in enumerate(self.starts) if needed >> i & 1)

    def last(self, layers: Collection[str]) -> list[str]:
        """The nodes that end last: the deepest of all, and for each tower the deepest node that takes what it keeps."""
        deepest = max(self.depth, key=self.depth.__getitem__)
        return list(dict.fromkeys([deepest, *(self.users[origins] for origins in self._towers(layers))]))

    def _towers(self, layers: Collection[str]) -> list[int]:
        """The origins of the first layer of each tower: those that contain no other layer's origins as a part."""
        found = {self.origins[name] for name in layers if name in self.origins}
        return sorted(one for one in found if not any(other != one and other & one == other for other in found))
