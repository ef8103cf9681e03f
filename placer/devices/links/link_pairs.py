"""Chooses the pairs of devices whose links are measured if there are too many devices to measure all pairs."""

from __future__ import annotations

from collections.abc import Sequence

ALL = 8  # devices up to which every pair is measured

Pair = tuple[int, int]


def representatives(kinds: Sequence[str], nodes: Sequence[str | None]) -> dict[Pair, list[Pair]]:
    """Each pair to measure -> all pairs that its link stands for, including itself.

    kinds, nodes: one entry per device. With up to ALL devices, or if a node is unknown, each pair stands for itself.
    With more devices, each pair within a node still stands for itself. Between two nodes, one pair stands for all pairs
    of the same two kinds; the devices in these pairs are ordered by node and kind as in the measured pair.
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
