"""Clusters: sets of units that exchange much relative to their work, at every scale, which a search moves as one."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from placer.graph.merging import has_stalled, matching, two_hop
from search.problem.problem import Problem

LEAST_S = 1e-12  # a tensor that takes no time still ties two units together
LARGEST_SHARE = 0.6  # the largest share of all work in a cluster; a larger cluster would be nearly the whole graph


def neighbours(problem: Problem) -> dict[tuple[int, int], float]:
    """Seconds that the tensors between two units u < w take over the mean link, by pair of units."""
    latency_s, per_byte = _mean_crossing(problem)
    talk_s: dict[tuple[int, int], float] = defaultdict(float)
    for e in problem.graph.edges:
        u, w = problem.unit_of[e.src], problem.unit_of[e.dst]
        if u != w:
            talk_s[min(u, w), max(u, w)] += latency_s + per_byte * e.edge_bytes
    return dict(talk_s)


def clusters(problem: Problem) -> list[NDArray[np.int64]]:
    """Return sets of two or more units, small ones first: all clusters of all rounds of heavy-edge matching.

    In each round the pairs that exchange most relative to their work unite, each cluster at most once, so that sizes
    about double from round to round. A hub unites with one cluster per round. So the clusters left over around it unite
    in pairs; else there would be as many rounds as the hub has neighbours.
    """
    work_s = list(problem.unit_mean_s)
    members: dict[int, list[int]] = {u: [u] for u in range(len(work_s))}
    talk_s = neighbours(problem)
    floor_s, most_s = sum(work_s) / max(len(work_s), 1) / 100 + 1e-30, LARGEST_SHARE * sum(work_s)
    found: list[NDArray[np.int64]] = []
    while talk_s:
        into = _matching(talk_s, work_s, floor_s, most_s)
        if not into:
            break
        for gone, kept in into.items():
            members[kept] += members.pop(gone)
            work_s[kept] += work_s[gone]
            found.append(np.array(sorted(members[kept])))
        talk_s = _united(talk_s, into)
    return found


def _matching(
    talk_s: dict[tuple[int, int], float], work_s: list[float], floor_s: float, most_s: float
) -> dict[int, int]:
    """Return the clusters that unite in one round: cluster that disappears -> cluster that takes it in."""

    def score(pair: tuple[int, int]) -> float:
        a, b = pair
        return talk_s[pair] / (floor_s + min(work_s[a], work_s[b]))

    def may_unite(a: int, b: int) -> bool:
        return work_s[a] + work_s[b] <= most_s

    pairs = sorted(talk_s, key=lambda pair: (-score(pair), pair))
    united = list(matching(pairs, may_unite))
    if united and has_stalled(pairs, united):
        united += matching(two_hop(pairs, united), may_unite)
    return {b: a for a, b in united}


def _united(talk_s: dict[tuple[int, int], float], into: dict[int, int]) -> dict[tuple[int, int], float]:
    fewer: dict[tuple[int, int], float] = defaultdict(float)
    for (a, b), seconds in talk_s.items():
        u, w = into.get(a, a), into.get(b, b)
        if u != w:
            fewer[min(u, w), max(u, w)] += seconds
    return dict(fewer)


def _mean_crossing(problem: Problem) -> tuple[float, float]:
    """Return (seconds per tensor, seconds per byte) over the mean link, including the work at its ends.

    For max-load, return those at the ports.
    """
    if problem.objective == "max-load":
        ports = [b for d in problem.topology.devices for b in (d.ingress_bytes_per_s, d.egress_bytes_per_s) if b]
        return LEAST_S, float(np.mean([1 / b for b in ports])) if ports else 0.0
    link = problem.topology.mean_link
    per_byte = 1 / link.bandwidth_bytes_per_s + link.send_s_per_byte + link.receive_s_per_byte
    return max(LEAST_S, link.latency_s + link.send_s + link.receive_s), per_byte
