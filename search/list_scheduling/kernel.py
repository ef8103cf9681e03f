"""Compiled list scheduling: ops in a given order, each to the device where it would finish first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from search.problem.problem import Limits
from surrogate.jit import inlined, jit
from surrogate.simulate.kernels.arrays import Tables
from surrogate.simulate.kernels.transfer import transfer_s

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
NOWHERE = -1


@inlined
def _gap(begin_s: Floats, end_s: Floats, count: int, after_s: float, length_s: float) -> float:
    """The earliest time from after_s on when a device is free for length_s.

    begin_s, end_s: when it is busy, sorted, spans that touch made one.
    """
    if length_s == 0 or after_s == np.inf or count == 0 or after_s >= end_s[count - 1]:
        return after_s
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if begin_s[middle] <= after_s:
            low = middle + 1
        else:
            high = middle
    at_s = max(after_s, end_s[low - 1]) if low > 0 else after_s
    while low < count and begin_s[low] < at_s + length_s:
        at_s = max(at_s, end_s[low])
        low += 1
    return at_s


@inlined
def _occupy(begin_s: Floats, end_s: Floats, count: int, from_s: float, to_s: float) -> int:
    """Keep a device busy; returns how many spans it has now. It was free then."""
    if not from_s < to_s < np.inf:
        return count
    i = count
    while i > 0 and begin_s[i - 1] > from_s:
        i -= 1
    joins_left = i > 0 and end_s[i - 1] == from_s
    joins_right = i < count and begin_s[i] == to_s
    if joins_left and joins_right:
        end_s[i - 1] = end_s[i]
        for j in range(i, count - 1):
            begin_s[j], end_s[j] = begin_s[j + 1], end_s[j + 1]
        return count - 1
    if joins_left:
        end_s[i - 1] = to_s
        return count
    if joins_right:
        begin_s[i] = from_s
        return count
    for j in range(count, i, -1):
        begin_s[j], end_s[j] = begin_s[j - 1], end_s[j - 1]
    begin_s[i], end_s[i] = from_s, to_s
    return count + 1


@jit
def list_schedule(
    t: Tables, limits: Limits, line: Ints, ahead_s: Floats, device: Ints, start_s: Floats, finish_s: Floats
) -> bool:
    """Fill device, start_s and finish_s, [ops], by taking the ops in `line`, producers first.

    ahead_s: [ops, devices] seconds that count beside the finish when a device is chosen; where all are infinite, or
    tie, the finish decides. The earliest finish is that of Topcuoglu, Hariri, Wu 2002, eqs. 6 and 7, with the work of
    receiving placed right before the op. Returns whether every unit found room in memory.
    """
    by_dst, tensor, size, src, dst, first_need = t.by_dst, t.tensor, t.tensor_bytes, t.src, t.dst, t.start
    cost_s, link = t.cost_s, t.link
    unit_of, unit_bytes, feasible = limits.unit_of, limits.unit_bytes, limits.feasible
    free = limits.capacity_bytes.copy()
    n, devices = cost_s.shape
    first_input = np.zeros(n + 1, np.int64)
    for v in range(n):
        first_input[v + 1] = first_input[v] + t.inputs[v]
    room = n + (len(dst) if t.ends_work else 0)
    begin_s, end_s = np.empty((devices, room)), np.empty((devices, room))
    count = np.zeros(devices, np.int64)
    there_s = np.full((t.tensors, devices), -1.0)
    unit_device = np.full(len(unit_bytes), NOWHERE, np.int32)
    complete = True
    for v in line:
        # Where v may go: its unit's device, or those with room for the whole unit, or the roomiest.
        unit = unit_of[v]
        only = unit_device[unit]
        if only == NOWHERE:
            fits = False
            for d in range(devices):
                if feasible[unit, d]:
                    fits = fits or free[d] >= unit_bytes[unit]
                    if only == NOWHERE or free[d] > free[only]:
                        only = d
            if fits:
                only = NOWHERE
            else:
                complete = False
        best, best_value_s, best_s, best_begin_s, best_receive_s = NOWHERE, np.inf, np.inf, 0.0, 0.0
        for d in range(devices):
            if only != NOWHERE and d != only:
                continue
            if only == NOWHERE and not (feasible[unit, d] and free[d] >= unit_bytes[unit]):
                continue
            ready_s, receive_s = 0.0, 0.0
            for i in range(first_input[v], first_input[v + 1]):
                k = by_dst[i]
                known_s = there_s[tensor[k], d]
                if known_s >= 0:
                    ready_s = max(ready_s, known_s)
                    continue
                u = src[k]
                s = device[u]
                send_s, way_s, one_receive_s = transfer_s(link, s, d, size[k])
                sent_s = finish_s[u]
                if send_s != 0 and sent_s != np.inf:
                    sent_s = _gap(begin_s[s], end_s[s], count[s], sent_s, send_s) + send_s
                ready_s = max(ready_s, sent_s + way_s)
                receive_s += one_receive_s
            busy_s = receive_s + cost_s[v, d]
            at_s = _gap(begin_s[d], end_s[d], count[d], ready_s, busy_s)
            done_s = at_s + busy_s
            value_s = done_s + ahead_s[v, d]
            if best == NOWHERE or value_s < best_value_s or (value_s == best_value_s and done_s < best_s):
                best, best_value_s, best_s, best_begin_s, best_receive_s = d, value_s, done_s, at_s, receive_s
        d = best
        if unit_device[unit] == NOWHERE:
            unit_device[unit] = d
            free[d] -= unit_bytes[unit]
        device[v], start_s[v], finish_s[v] = d, best_begin_s + best_receive_s, best_s
        for i in range(first_input[v], first_input[v + 1]):
            k = by_dst[i]
            if there_s[tensor[k], d] >= 0:
                continue
            u = src[k]
            s = device[u]
            send_s, _, _ = transfer_s(link, s, d, size[k])
            if send_s != 0 and finish_s[u] != np.inf:
                at_s = _gap(begin_s[s], end_s[s], count[s], finish_s[u], send_s)
                count[s] = _occupy(begin_s[s], end_s[s], count[s], at_s, at_s + send_s)
            there_s[tensor[k], d] = start_s[v]
        count[d] = _occupy(begin_s[d], end_s[d], count[d], best_begin_s, best_s)
        for k in range(first_need[v], first_need[v + 1]):
            there_s[tensor[k], d] = best_s
    return complete


@jit
def rank_all(t: Tables, order: Ints, mean_s: Floats, way_s: Floats, rank_s: Floats) -> None:
    """Fill rank_s, [ops], with upward ranks as surrogate/simulate/priority.py defines them.

    order: op indices, producers first. mean_s: [ops] seconds of each op. way_s: [needs] seconds of each crossing.
    """
    for i in range(len(order) - 1, -1, -1):
        v = order[i]
        heaviest_s = 0.0
        for k in range(t.start[v], t.start[v + 1]):
            heaviest_s = max(heaviest_s, way_s[k] + rank_s[t.dst[k]])
        rank_s[v] = mean_s[v] + heaviest_s
