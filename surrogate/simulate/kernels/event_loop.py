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
from surrogate.simulate.kernels.arrays import NO_CONTENTION, Tables
from surrogate.simulate.kernels.crossings import (
    announce,
    departs,
    no_crossings,
    op_ends,
    requests,
    start_transfers,
)
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


@kernel
def _heavy(t: Tables, w: RunState, placements: Ints, out: Floats) -> None:
    """Sending and receiving keep devices busy, and links or ports may be taken."""
    contended = t.contention != NO_CONTENTION
    for row in range(len(placements)):
        out[row] = np.nan
        events, waiting, turn = 0, 0, 0
        left = len(t.cost_s) if begins(t, w, placements, row) else 0
        no_crossings(w)
        while left > 0:
            now_s = _next_s(w, events)
            out[row] = now_s
            if now_s == np.inf:
                break
            ended, departing = _ops_end(t, w, now_s)
            left -= ended
            if contended:
                events = announce(w, events, departing)
                requested, happened = requests(t, w, events, now_s)
                waiting, events = waiting + requested, events - happened
                departing = 0
                if happened > 0:
                    departing, events, turn = start_transfers(t, w, events, waiting, turn, now_s)
                    waiting -= departing
            for i in range(departing):
                departs(t, w, w.departing[i], now_s)
            for d in range(len(w.running)):
                if w.running[d] == IDLE and w.next_s[d] <= now_s:
                    _take_work(t, w, d, now_s)


@part
def _next_s(w: RunState, events: int) -> float:
    """When something happens next: on a device, or at a link."""
    next_s = w.event_s[0] if events > 0 else np.inf
    for d in range(len(w.running)):
        next_s = min(next_s, w.next_s[d])
    return next_s


@part
def _ops_end(t: Tables, w: RunState, now_s: float) -> tuple[int, int]:
    """(how many ops end now, how many crossings these send: the first of `departing`)."""
    ended, departing = 0, 0
    for d in range(len(w.running)):
        v = w.running[d]
        if v != IDLE and w.next_s[d] == now_s:
            w.running[d] = IDLE
            if v != OCCUPIED:
                ended += 1
                departing = op_ends(t, w, v, d, departing, now_s)
    return ended, departing


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
