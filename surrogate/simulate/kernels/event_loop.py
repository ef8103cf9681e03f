"""The compiled event loop: makespans of many mappings, equal to surrogate/simulate/reference.py to the last bit.

What the reference finds by stepping through every event is mostly known ahead: without contention a tensor's arrival
is known when its op ends, so inputs are counted then, and an op is put in line for the latest of them. That leaves as
events what devices finish, and with contention what links finish. Two kernels: `_light` where tensors cross freely and
their ends do no work, `_heavy` for the rest. `run_state` holds the state of a run and the lines of ops, `crossings` the
queues of transfers.
"""

from __future__ import annotations

import numpy as np

from surrogate.jit import jit, kernel, part
from surrogate.simulate.kernels.arrays import LINK_CONTENTION, NO_CONTENTION, Tables
from surrogate.simulate.kernels.crossings import departs, first_free, op_ends, pop, push, request, starts
from surrogate.simulate.kernels.run_state import (
    IDLE,
    NOTHING,
    OCCUPIED,
    Floats,
    Ints,
    RunState,
    begins,
    input_comes,
    take_op,
    workspace,
)
from surrogate.simulate.kernels.transfer import transfer_s


@jit
def makespans(tables: Tables, placements: Ints, makespan_s: Floats) -> None:
    """Fill makespan_s[i] with the seconds of placements[i], [n, ops] devices; infinity where a link or cost is missing.

    NaN where a device does not exist.
    """
    run = workspace(tables)
    if tables.contention == NO_CONTENTION and not tables.ends_work:
        _light(tables, run, placements, makespan_s)
    else:
        _heavy(tables, run, placements, makespan_s)


@kernel
def _light(t: Tables, w: RunState, placements: Ints, out: Floats) -> None:
    """Tensors cross without waiting, and nobody works for it."""
    n, devices = t.cost_s.shape
    for row in range(len(placements)):
        out[row] = np.nan
        left = n if begins(t, w, placements, row) else 0
        while left > 0:
            now_s, first, ties = w.next_s[0], 0, 1
            for d in range(1, devices):
                at_s = w.next_s[d]
                ties = 1 if at_s < now_s else ties + (at_s == now_s)
                first = d if at_s < now_s else first
                now_s = min(now_s, at_s)
            out[row] = now_s
            if now_s == np.inf:
                break
            # Most often one device is due, and wakes no other.
            end = first + 1
            if ties > 1:
                first, end = 0, devices
            woken = False
            for d in range(first, end):
                v = w.running[d]
                if v >= 0 and w.next_s[d] == now_s:
                    w.running[d] = IDLE
                    left -= 1
                    for k in range(t.start[v], t.start[v + 1]):
                        u = t.dst[k]
                        e = w.device[u]
                        # Staying is a crossing over a link that takes no time.
                        _, way_s, _ = transfer_s(t.link, d, e, t.tensor_bytes[k])
                        at_s = now_s + way_s
                        if input_comes(t, w, u, e, at_s, now_s):
                            woken = True
            if woken:
                first, end = 0, devices
            for d in range(first, end):
                if w.running[d] == IDLE and w.next_s[d] <= now_s:
                    take_op(t, w, d, now_s)


@part
def _take_work(t: Tables, w: RunState, d: int, now_s: float) -> None:
    """A free device receives what has arrived, else takes the first op in line."""
    waits = w.arrived_tail[d] > w.arrived_head[d]
    at = d * t.tensors + w.arrived_head[d]
    if waits and w.arrived_s[at] <= now_s:
        k = w.arrived[at]
        w.arrived_head[d] += 1
        s = w.device[t.src[k]]
        _, _, receive_s = transfer_s(t.link, s, d, t.tensor_bytes[k])
        end_s = now_s + receive_s
        w.running[d], w.next_s[d] = OCCUPIED, end_s
        while k != NOTHING:
            input_comes(t, w, t.dst[k], d, end_s, now_s)
            k = w.chain[k]
    elif not take_op(t, w, d, now_s) and waits:
        w.next_s[d] = min(w.next_s[d], w.arrived_s[at])


@kernel
def _heavy(t: Tables, w: RunState, placements: Ints, out: Floats) -> None:
    """Sending and receiving keep devices busy, and links or ports may be taken."""
    n, devices = t.cost_s.shape
    by_link, contended = t.contention == LINK_CONTENTION, t.contention != NO_CONTENTION
    for row in range(len(placements)):
        out[row] = np.nan
        events, waiting, turn = 0, 0, 0
        left = n if begins(t, w, placements, row) else 0
        w.arrived_head[:], w.arrived_tail[:], w.last[:] = 0, 0, NOTHING
        w.front[:], w.back[:], w.held_s[:], w.held_turn[:] = NOTHING, NOTHING, 0.0, 0
        while left > 0:
            now_s = w.event_s[0] if events > 0 else np.inf
            for d in range(devices):
                now_s = min(now_s, w.next_s[d])
            out[row] = now_s
            if now_s == np.inf:
                break
            departing, changed = 0, False
            for d in range(devices):
                v = w.running[d]
                if v != IDLE and w.next_s[d] == now_s:
                    w.running[d] = IDLE
                    if v != OCCUPIED:
                        left -= 1
                        departing = op_ends(t, w, v, d, departing, now_s)
            if contended:
                for i in range(departing):
                    k = w.departing[i]
                    push(w.event_s, w.event, events, w.sent_s[k], k)
                    events += 1
                departing = 0
            # Sending ends and transfers end: others may start, those of one turn before what they set free.
            while events > 0 and w.event_s[0] == now_s:
                k = pop(w.event_s, w.event, events)
                events -= 1
                changed = True
                if k != NOTHING:
                    request(w, k, t.src[k], t.dst[k], now_s)
                    waiting += 1
            while changed and waiting > 0:
                changed = False
                turn += 1
                pair = first_free(by_link, devices, w.front, w.sent_s, w.held_s, w.held_turn, turn, now_s)
                while pair != NOTHING:
                    w.departing[departing] = w.front[pair]
                    departing += 1
                    waiting -= 1
                    end_s = starts(t, w, pair, turn, now_s)
                    if end_s > now_s:
                        push(w.event_s, w.event, events, end_s, NOTHING)
                        events += 1
                    else:
                        changed = True
                    pair = first_free(by_link, devices, w.front, w.sent_s, w.held_s, w.held_turn, turn, now_s)
            for i in range(departing):
                departs(t, w, w.departing[i], now_s)
            for d in range(devices):
                if w.running[d] == IDLE and w.next_s[d] <= now_s:
                    _take_work(t, w, d, now_s)
