"""The least seconds before and after each op on each device, compiled.

Every other op is assumed to be on the device where the path is shortest. So the seconds are a lower bound for all
schedules. PEFT looks ahead with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from search.problem.problem import Limits
from surrogate.jit import inlined, jit
from surrogate.simulate.kernels.arrays import NO_CONTENTION, Tables
from surrogate.simulate.kernels.transfer import transfer_s

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


class PathTables(NamedTuple):
    """The inputs of the kernels below. p: a pair of producer and consumer, with tensors first[p] to first[p + 1]."""

    order: Ints  # [ops] producers first
    src: Ints  # [p] in the order of the producers in `order`
    dst: Ints  # [p]
    together: NDArray[np.bool_]  # [p] whether both are colocated
    apart: NDArray[np.bool_]  # [p, d] whether the device is too small for both
    first: Ints  # [p + 1]
    tensor_bytes: Floats  # by pair
    cost_s: Floats  # [ops, d] infinite on devices that an op, or an op colocated with it, may not use
    link: Floats  # [6, d, d]
    in_turn: bool  # whether transfers over one link wait for each other


def path_tables(t: Tables, limits: Limits, order: Sequence[int]) -> PathTables:
    """Return the inputs of the kernels. order: op indices, producers first."""
    line = np.array(order, np.int32)
    place = np.empty(len(line), np.int64)
    place[line] = np.arange(len(line))
    need = np.lexsort((t.dst, place[t.src]))
    src, dst = t.src[need], t.dst[need]
    new = np.ones(len(need), bool)
    new[1:] = (np.diff(src) != 0) | (np.diff(dst) != 0)
    at = np.flatnonzero(new)
    u, v = limits.unit_of[src[at]], limits.unit_of[dst[at]]
    return PathTables(
        order=line,
        src=src[at],
        dst=dst[at],
        together=u == v,
        apart=(u != v)[:, None] & ~limits.hold_both(u, v),
        first=np.append(at, len(need)).astype(np.int32),
        tensor_bytes=t.tensor_bytes[need],
        cost_s=np.where(limits.feasible[limits.unit_of], t.cost_s, np.inf),
        link=t.link,
        in_turn=t.contention != NO_CONTENTION,
    )


@inlined
def _crossing(w: PathTables, p: int, s: int, d: int) -> float:
    """The least seconds from the end of pair p's producer on s to the start of its consumer on d.

    The sender and the receiver handle one tensor after the other. So does the link if transfers wait for each other.
    Each of the three gives a bound: its seconds for all tensors, plus the least seconds of any one tensor before and
    after it.
    """
    if s == d:
        return np.inf if w.apart[p, d] else 0.0
    if w.together[p]:
        return np.inf
    least_send, least_way, least_receive = np.inf, np.inf, np.inf
    least_out, least_in, longest = np.inf, np.inf, 0.0
    sends, transfers, receives = 0.0, 0.0, 0.0
    for k in range(w.first[p], w.first[p + 1]):
        out_s, link_s, in_s = transfer_s(w.link, s, d, w.tensor_bytes[k])
        longest = max(longest, out_s + link_s + in_s)
        least_send, least_way, least_receive = min(least_send, out_s), min(least_way, link_s), min(least_receive, in_s)
        least_out, least_in = min(least_out, out_s + link_s), min(least_in, link_s + in_s)
        sends, transfers, receives = sends + out_s, transfers + link_s, receives + in_s
    longest = max(longest, sends + least_in, least_out + receives)
    if w.in_turn:
        longest = max(longest, least_send + transfers + least_receive)
    return longest


@jit
def crossings(ways: PathTables) -> Floats:
    """The least seconds from the end of pair p's producer on s to the start of its consumer on d, [pairs, s, d]."""
    devices = ways.cost_s.shape[1]
    cross_s = np.empty((len(ways.src), devices, devices))
    for p in range(len(ways.src)):
        for s in range(devices):
            for d in range(devices):
                cross_s[p, s, d] = _crossing(ways, p, s, d)
    return cross_s


@jit
def heads(ways: PathTables) -> Floats:
    """The least seconds before op v can start on d, [ops, d]; infinite where it cannot run."""
    devices = ways.cost_s.shape[1]
    head_s = np.where(ways.cost_s < np.inf, 0.0, np.inf)
    # Pairs are in the order of their producers. So all pairs with a producer as their consumer come before its own.
    for p in range(len(ways.src)):
        u, v = ways.src[p], ways.dst[p]
        for d in range(devices):
            best_s = np.inf
            for s in range(devices):
                best_s = min(best_s, head_s[u, s] + ways.cost_s[u, s] + _crossing(ways, p, s, d))
            head_s[v, d] = max(head_s[v, d], best_s)
    return head_s


@jit
def tails(ways: PathTables) -> Floats:
    """The least seconds from the end of op v on d to the end of the step, [ops, d]; infinite where it cannot run."""
    devices = ways.cost_s.shape[1]
    tail_s = np.where(ways.cost_s < np.inf, 0.0, np.inf)
    for p in range(len(ways.src) - 1, -1, -1):
        u, v = ways.src[p], ways.dst[p]
        for s in range(devices):
            best_s = np.inf
            for d in range(devices):
                best_s = min(best_s, _crossing(ways, p, s, d) + ways.cost_s[v, d] + tail_s[v, d])
            tail_s[u, s] = max(tail_s[u, s], best_s)
    return tail_s
