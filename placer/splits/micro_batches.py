"""Micro-batches in a divided graph: whether they need each other, and waits that let only a few be under way.

TensorFlow's executor starts whatever is ready. Without waits, all micro-batches would hold their activations at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from placer.trace.graph_def.node_def import source_of

EARLY = 0.75  # of the longest way through a micro-batch is left after what has to wait


def limit(graph_def: Any, turn: Mapping[str, int], parts: Collection[str], in_flight: int) -> bool:
    """Let micro-batch i begin after i - in_flight has ended. Returns False where they need each other, so that none can
    end before all have begun.

    graph_def: producers first. turn: node -> its micro-batch. parts: the nodes that are parts of ops.
    """
    if not _are_independent(graph_def, turn, parts):
        return False
    before, height = _depths(graph_def, turn)
    nodes = {node.name: node for node in graph_def.node}
    of: dict[int, list[str]] = defaultdict(list)
    for name, i in turn.items():
        of[i].append(name)
    for i in range(in_flight, len(of)):
        last = max(of[i - in_flight], key=before.__getitem__)
        longest = max(height[name] for name in of[i])
        for name in of[i]:
            if not before[name] and height[name] >= EARLY * longest:
                nodes[name].input.append(f"^{last}")
    return True


def _are_independent(graph_def: Any, turn: Mapping[str, int], parts: Collection[str]) -> bool:
    """Whether no part of an op needs what another micro-batch makes."""
    needs: dict[str, int] = {}  # node -> the micro-batches that it needs and is of, as bits
    for node in graph_def.node:
        own = 1 << turn[node.name] if node.name in turn else 0
        needs[node.name] = own
        for text in node.input:
            needs[node.name] |= needs[source_of(text)]
        if node.name in parts and needs[node.name] != own:
            return False
    return True


def _depths(graph_def: Any, turn: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """For each node the longest chain of nodes of its own micro-batch that come before it, and after it."""
    before: dict[str, int] = dict.fromkeys(turn, 0)
    after: dict[str, int] = dict.fromkeys(turn, 0)
    edges = [
        (source, node.name)
        for node in graph_def.node
        if node.name in turn
        for source in map(source_of, node.input)
        if turn.get(source) == turn[node.name]
    ]
    for source, name in edges:
        before[name] = max(before[name], before[source] + 1)
    for source, name in reversed(edges):
        after[source] = max(after[source], after[name] + 1)
    return before, after
