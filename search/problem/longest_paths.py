"""The least seconds before and after each op on each device, compiled.

Every other op is assumed to be on the device where the path is shortest. So the seconds are a lower bound for all
schedules. PEFT looks ahead with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from search.problem.alike_devices import first_alike
from search.problem.problem import Limits
from search.problem.searcher import Stop, never
from surrogate.jit import inlined, jit
from surrogate.simulate.kernels.arrays import NO_CONTENTION, Tables
from surrogate.simulate.kernels.transfer import transfer_s

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

AT_ONCE = 4_000_000  # pairs of an op and a device, times kinds of devices, between two checks of the clock


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
    of_kind: Ints  # [d] the devices by kind; the links of one kind are alike
    kind: Ints  # [kinds + 1] kind k has the devices of_kind[kind[k]] to of_kind[kind[k + 1]]


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
    like = np.array(first_alike(t.link, np.zeros((0, t.link.shape[1]))), np.int32)
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
        of_kind=np.argsort(like, kind="stable").astype(np.int32),
        kind=np.append(0, np.cumsum(np.unique(like, return_counts=True)[1])).astype(np.int32),
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


def heads(ways: PathTables, stop: Stop = never) -> Floats:
    """The least seconds before op v can start on d, [ops, d]; infinite where it cannot run. After `stop()` the other
    pairs are left out, and the seconds may be fewer.
    """
    head_s = np.where(ways.cost_s < np.inf, 0.0, np.inf)
    pairs, at_once = len(ways.src), _at_once(ways)
    # Pairs are in the order of their producers. So all pairs with a producer as their consumer come before its own.
    for p in range(0, pairs, at_once):
        if p and stop():
            break
        _add_heads(ways, head_s, p, min(p + at_once, pairs))
    return head_s


def tails(ways: PathTables) -> Floats:
    """The least seconds from the end of op v on d to the end of the step, [ops, d]; infinite where it cannot run."""
    tail_s = np.where(ways.cost_s < np.inf, 0.0, np.inf)
    _add_tails(ways, tail_s)
    return tail_s


def _at_once(ways: PathTables) -> int:
    return max(1, AT_ONCE // (len(ways.of_kind) * (len(ways.kind) - 1)))


@inlined
def _between(w: PathTables, p: int, i: int, j: int) -> float:
    """`_crossing` from a device of kind i to another one of kind j; infinite if there is none."""
    if i != j:
        return _crossing(w, p, w.of_kind[w.kind[i]], w.of_kind[w.kind[j]])
    if w.kind[i + 1] - w.kind[i] == 1:
        return np.inf
    return _crossing(w, p, w.of_kind[w.kind[i]], w.of_kind[w.kind[i] + 1])


@jit
def _add_heads(w: PathTables, head_s: Floats, begin: int, end: int) -> None:
    """Raise the heads of the consumers of pairs `begin` to `end`. Each minimum over devices is taken by kinds, because
    a crossing takes the same seconds from all devices of a kind: that of one other device, unless both are the same.
    """
    devices, kinds = w.cost_s.shape[1], len(w.kind) - 1
    made_s, others_s = np.empty(devices), np.empty(kinds)
    least_s, second_s, least_at = np.empty(kinds), np.empty(kinds), np.empty(kinds, np.int32)
    for p in range(begin, end):
        u, v = w.src[p], w.dst[p]
        for i in range(kinds):
            least_s[i], second_s[i], least_at[i] = np.inf, np.inf, -1
            for k in range(w.kind[i], w.kind[i + 1]):
                s = w.of_kind[k]
                made_s[s] = head_s[u, s] + w.cost_s[u, s]
                if made_s[s] < least_s[i]:
                    least_s[i], second_s[i], least_at[i] = made_s[s], least_s[i], s
                else:
                    second_s[i] = min(second_s[i], made_s[s])
        others_s[:] = np.inf
        for i in range(kinds):
            for j in range(kinds):  # the inner loop, because the links of one sender lie side by side in memory
                if i != j:
                    others_s[j] = min(others_s[j], least_s[i] + _between(w, p, i, j))
        for j in range(kinds):
            within_s = _between(w, p, j, j)
            for k in range(w.kind[j], w.kind[j + 1]):
                d = w.of_kind[k]
                best_s = min(others_s[j], (second_s[j] if d == least_at[j] else least_s[j]) + within_s)
                best_s = min(best_s, np.inf if w.apart[p, d] else made_s[d])
                head_s[v, d] = max(head_s[v, d], best_s)


@jit
def _add_tails(w: PathTables, tail_s: Floats) -> None:
    """Raise the tails of the producers of all pairs, the last pair first. Minima are taken as in `_add_heads`, but anew
    for each kind of the producer: the crossing is the first term of each sum, whose order decides its last digits.
    """
    kinds = len(w.kind) - 1
    for p in range(len(w.src) - 1, -1, -1):
        u, v = w.src[p], w.dst[p]
        for i in range(kinds):
            others_s, least_s, second_s, least_at = np.inf, np.inf, np.inf, -1
            for j in range(kinds):
                cross_s = _between(w, p, i, j)
                for k in range(w.kind[j], w.kind[j + 1]):
                    d = w.of_kind[k]
                    after_s = cross_s + w.cost_s[v, d] + tail_s[v, d]
                    if i != j:
                        others_s = min(others_s, after_s)
                    elif after_s < least_s:
                        least_s, second_s, least_at = after_s, least_s, d
                    else:
                        second_s = min(second_s, after_s)
            for k in range(w.kind[i], w.kind[i + 1]):
                s = w.of_kind[k]
                best_s = min(others_s, second_s if s == least_at else least_s)
                best_s = min(best_s, np.inf if w.apart[p, s] else w.cost_s[v, s] + tail_s[v, s])
                tail_s[u, s] = max(tail_s[u, s], best_s)
