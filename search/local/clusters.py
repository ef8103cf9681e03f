"""Clusters: sets of units that exchange much relative to their work, at every scale, which a search moves as one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placer.graph.merging import has_stalled, matching, two_hop
from search.problem.problem import Problem

LEAST_S = 1e-12  # a tensor that takes no time still ties two units together
LARGEST_SHARE = 0.6  # the largest share of all work in a cluster; a larger cluster would be nearly the whole graph

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Talk(NamedTuple):
    """How much the units of each pair exchange; no pair comes twice."""

    pairs: Ints  # [p, 2] units, the lower index first
    seconds: Floats  # [p] that their tensors take over the mean link


class Clusters(NamedTuple):
    """Sets of two or more units, small ones first."""

    sizes: Ints  # [clusters]
    member: Ints  # [sum of sizes] the units of the first cluster in ascending order, then those of the second, ...


def neighbours(problem: Problem) -> Talk:
    """Return the pairs of units that exchange tensors, in the order of the first edge of each."""
    latency_s, per_byte = _mean_crossing(problem)
    crossing_s = latency_s + per_byte * problem.graph.edge_columns.edge_bytes
    return _united(Talk(problem.unit_ends, crossing_s), len(problem.units))


def clusters(problem: Problem, talk: Talk) -> Clusters:
    """Return all clusters of all rounds of heavy-edge matching. talk: of `neighbours`.

    In each round the pairs that exchange most relative to their work unite, each cluster at most once, so that sizes
    about double from round to round. A hub unites with one cluster per round. So the clusters left over around it unite
    in pairs; else there would be as many rounds as the hub has neighbours.
    """
    work_s = np.array(problem.unit_mean_s)
    cluster_of = np.arange(len(work_s))  # each is named by one of its units
    floor_s, most_s = work_s.sum() / max(len(work_s), 1) / 100 + 1e-30, LARGEST_SHARE * work_s.sum()
    sizes, members = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    while len(talk.pairs) and len(united := _matching(talk, work_s, floor_s, most_s)):
        kept, gone = united.T
        work_s[kept] += work_s[gone]
        into = np.arange(len(work_s))
        into[gone] = kept
        cluster_of = into[cluster_of]
        turn = np.full(len(work_s), -1)
        turn[kept] = np.arange(len(kept))
        units = np.flatnonzero(turn[cluster_of] >= 0)
        members.append(units[np.argsort(turn[cluster_of[units]], kind="stable")])
        sizes.append(np.bincount(turn[cluster_of[units]]))
        talk = _united(Talk(into[talk.pairs], talk.seconds), len(work_s))
    return Clusters(np.concatenate(sizes), np.concatenate(members))


def _matching(talk: Talk, work_s: Floats, floor_s: float, most_s: float) -> Ints:
    """Return the pairs of clusters that unite in one round, [n, 2]; the first of a pair takes the other in."""

    def may_unite(a: int, b: int) -> bool:
        return bool(work_s[a] + work_s[b] <= most_s)

    score = talk.seconds / (floor_s + work_s[talk.pairs].min(axis=1))
    best_first = np.lexsort((talk.pairs[:, 1], talk.pairs[:, 0], -score))
    first, second = talk.pairs[best_first].T.tolist()
    pairs = list(zip(first, second, strict=True))
    united = list(matching(pairs, may_unite))
    if united and has_stalled(pairs, united):
        united += matching(two_hop(pairs, united), may_unite)
    return np.array(united, np.int64).reshape(-1, 2)


def _united(talk: Talk, units: int) -> Talk:
    """Return `talk` with the seconds of equal pairs added up, and without the pairs of a unit with itself."""
    low, high = talk.pairs.min(axis=1), talk.pairs.max(axis=1)
    apart = low != high
    keys, first, which = np.unique(low[apart] * units + high[apart], return_index=True, return_inverse=True)
    seconds = np.zeros(len(keys))
    np.add.at(seconds, which, talk.seconds[apart])
    in_turn = np.argsort(first)
    return Talk(np.stack(np.divmod(keys[in_turn], units), axis=1), seconds[in_turn])


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
