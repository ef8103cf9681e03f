"""Compiled ETF: of all ready ops and devices, the pair that can start first comes next."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from search.problem.problem import Limits
from surrogate.jit import inner, jit, kernel
from surrogate.simulate.kernels.arrays import Tables
from surrogate.simulate.kernels.transfer import transfer_s

WINDOW = 256  # ready ops that are compared, those that became ready first; all of them take too long in wide graphs
NOWHERE = -1

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


class State(NamedTuple):
    """The schedule so far. v: op, d: device, u: unit."""

    device: Ints  # [v]
    finish_s: Floats  # [v]
    free_s: Floats  # [d] when the device has done all that it got
    come_s: Floats  # [v, d] when the last input of a ready op would be there
    waits: Ints  # [v] inputs whose makers have no device yet
    ready: Ints  # [v] the ready ops, in the order in which they became ready
    unit_device: Ints  # [u] NOWHERE before the unit's first op has a device
    free_bytes: Floats  # [d]


@jit
def earliest_start(tables: Tables, limits: Limits, place: Ints) -> Ints:
    """Return the device of each unit, [units]. place: [ops] each op's place in the order of priority."""
    ops, devices = tables.cost_s.shape
    state = State(
        np.empty(ops, np.int32),
        np.zeros(ops),
        np.zeros(devices),
        np.zeros((ops, devices)),
        tables.inputs.copy(),
        np.empty(ops, np.int32),
        np.full(len(limits.unit_bytes), NOWHERE, np.int32),
        limits.capacity_bytes.copy(),
    )
    _schedule(tables, limits, place, state)
    return state.unit_device


@kernel
def _schedule(t: Tables, limits: Limits, place: Ints, s: State) -> None:
    ready = 0
    for v in range(len(s.waits)):
        if s.waits[v] == 0:
            s.ready[ready] = v
            ready += 1
    for _ in range(len(s.waits)):
        at, d = _first(t, limits, place, s, min(ready, WINDOW))
        v = s.ready[at]
        for i in range(at, ready - 1):
            s.ready[i] = s.ready[i + 1]
        ready -= 1
        u = limits.unit_of[v]
        if s.unit_device[u] == NOWHERE:
            s.unit_device[u] = d
            s.free_bytes[d] -= limits.unit_bytes[u]
        s.device[v] = d
        s.finish_s[v] = max(s.free_s[d], s.come_s[v, d]) + t.cost_s[v, d]
        s.free_s[d] = s.finish_s[v]
        for need in range(t.start[v], t.start[v + 1]):
            w = t.dst[need]
            s.waits[w] -= 1
            if s.waits[w] == 0:
                _inputs_come(t, s, w)
                s.ready[ready] = w
                ready += 1


@inner
def _first(t: Tables, limits: Limits, place: Ints, s: State, ready: int) -> tuple[int, int]:
    """Return the position in `ready` and the device of the op that can start first. Of equal starts the op with the
    higher priority comes first, then the device on which it ends first. A unit without room anywhere goes to the
    roomiest device.
    """
    best, best_d, best_s, best_end_s = 0, NOWHERE, np.inf, np.inf
    for i in range(ready):
        v = s.ready[i]
        u = limits.unit_of[v]
        for d in range(len(s.free_s)):
            if s.unit_device[u] != d and (
                s.unit_device[u] != NOWHERE or not limits.feasible[u, d] or limits.unit_bytes[u] > s.free_bytes[d]
            ):
                continue
            start_s = max(s.free_s[d], s.come_s[v, d])
            end_s = start_s + t.cost_s[v, d]
            if best_d != NOWHERE:
                if start_s > best_s:
                    continue
                if start_s == best_s and (
                    place[v] > place[s.ready[best]] or (v == s.ready[best] and end_s >= best_end_s)
                ):
                    continue
            best, best_d, best_s, best_end_s = i, d, start_s, end_s
    if best_d == NOWHERE:
        u = limits.unit_of[s.ready[0]]
        for d in range(len(s.free_s)):
            if limits.feasible[u, d] and (best_d == NOWHERE or s.free_bytes[d] > s.free_bytes[best_d]):
                best_d = d
    return best, best_d


@inner
def _inputs_come(t: Tables, s: State, w: int) -> None:
    """Fill when the last input of op w, whose makers all have devices, would be on each device."""
    for i in range(t.first_input[w], t.first_input[w + 1]):
        need = t.by_dst[i]
        home, made_s = s.device[t.src[need]], s.finish_s[t.src[need]]
        for d in range(len(s.free_s)):
            send_s, way_s, receive_s = transfer_s(t.link, home, d, t.tensor_bytes[need])
            s.come_s[w, d] = max(s.come_s[w, d], made_s if d == home else made_s + send_s + way_s + receive_s)
