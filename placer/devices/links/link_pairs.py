"""Which pairs of devices have their links measured, where there are too many for all."""

from __future__ import annotations

from collections.abc import Sequence

ALL = 8  # devices up to which every pair is measured

Pair = tuple[int, int]


def representatives(kinds: Sequence[str], nodes: Sequence[str | None]) -> dict[Pair, list[Pair]]:
    """Each pair to measure -> all pairs that its link stands for, itself among them.

    kinds, nodes: of each device. Up to ALL devices, or where not all nodes are known, each pair stands for itself. Of
    more, every pair within a node does; between two nodes one pair of each two kinds stands for all of its kind.
    Devices of a pair are in the order in which those of the measured one are, node by node and kind by kind.
    """
    pairs = [(a, b) for a in range(len(nodes)) for b in range(a + 1, len(nodes))]
    if len(nodes) <= ALL or None in nodes:
        return {pair: [pair] for pair in pairs}
    found: dict[object, list[Pair]] = {}
    for a, b in pairs:
        key: object = (a, b)
        if nodes[a] != nodes[b]:
            one, other = (nodes[a], kinds[a]), (nodes[b], kinds[b])
            a, b = (a, b) if str(one) <= str(other) else (b, a)
            key = tuple(sorted((one, other), key=str))
        found.setdefault(key, []).append((a, b))
    return {alike[0]: alike for alike in found.values()}
