"""The compiled event loop: makespans of many mappings, equal to surrogate/simulate/reference.py to the last bit.

The reference steps through every event, but most of them are known ahead. Without contention a tensor's arrival is
known when its op ends, so inputs are counted then, and an op is put in line for the time of its latest input. The only
events left are the ends of work on devices and, with contention, the ends of transfers. There are two kernels: `light`
if tensors cross without queues and without work for either device, `heavy` for all other topologies. `run_state` holds
the state of a run and the lines of ops, `crossings` the queues of transfers.
"""

from __future__ import annotations

import numpy as np

from surrogate.jit import inner, jit, kernel
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
def makespans(tables: Tables, rows: Ints, makespan_s: Floats) -> None:
    """Fill makespan_s[i] with the seconds of rows[i]. rows: [n, ops] devices.

    Infinity if a link or cost is missing, NaN if a device does not exist.
    """
    run = workspace(tables)
    if tables.contention == NO_CONTENTION and not tables.ends_work:
        _all_light(tables, run, rows, makespan_s)
    else:
        _all_heavy(tables, run, rows, makespan_s)


@kernel
def _all_light(tables: Tables, run: RunState, rows: Ints, out: Floats) -> None:
    for row in range(len(rows)):
        out[row] = np.nan
        if begins(tables, run, rows, row):
            _, out[row] = light(tables, run, len(tables.cost_s), 0, False, np.inf)


@kernel
def _all_heavy(tables: Tables, run: RunState, rows: Ints, out: Floats) -> None:
    for row in range(len(rows)):
        out[row] = np.nan
        if begins(tables, run, rows, row):
            out[row] = heavy(tables, run, False, np.inf)


@kernel
def light(tables: Tables, run: RunState, left: int, until: int, bounds: bool, limit_s: float) -> tuple[int, float]:
    """Run on while more than `until` ops have not ended. Tensors cross without waiting and without work for devices.

    left: how many ops have not ended yet. Returns how many are left at the end, and the second. The second is infinity
    if a link or cost is missing, and, with `bounds`, as soon as the makespan is sure to be above limit_s.
    """
    devices, now_s = len(run.running), 0.0
    while left > until:
        now_s, first, ties = run.next_s[0], 0, 1
        for device in range(1, devices):
            at_s = run.next_s[device]
            ties = 1 if at_s < now_s else ties + (at_s == now_s)
            first = device if at_s < now_s else first
            now_s = min(now_s, at_s)
        if now_s == np.inf or run.least_s[0] > limit_s:
            return left, np.inf
        # Most often one device is due and wakes no other device.
        end = first + 1
        if ties > 1:
            first, end = 0, devices
        woken = False
        for device in range(first, end):
            op = run.running[device]
            if op >= 0 and run.next_s[device] == now_s:
                run.running[device] = IDLE
                left -= 1
                run.end_s[op] = now_s
                for need in range(tables.start[op], tables.start[op + 1]):
                    user = tables.dst[need]
                    there = run.device[user]
                    # A tensor that stays crosses over a link that takes no time.
                    _, way_s, _ = transfer_s(tables.link, device, there, tables.tensor_bytes[need])
                    at_s = now_s + way_s
                    if input_comes(tables, run, user, there, at_s, now_s):
                        woken = True
        if woken:
            first, end = 0, devices
        for device in range(first, end):
            if run.running[device] == IDLE and run.next_s[device] <= now_s:
                take_op(tables, run, device, now_s, bounds)
    return left, now_s


@kernel
def heavy(tables: Tables, run: RunState, bounds: bool, limit_s: float) -> float:
    """Run to the end and return the makespan, infinity as in `light`. Sending and receiving keep devices busy, and
    transfers wait for links or ports.
    """
    contended = tables.contention != NO_CONTENTION
    events, waiting, turn, now_s = 0, 0, 0, 0.0
    left = len(tables.cost_s)
    no_crossings(run)
    while left > 0:
        now_s = _next_s(run, events)
        if now_s == np.inf or run.least_s[0] > limit_s:
            return np.inf
        ended, departing = _ops_end(tables, run, now_s)
        left -= ended
        if contended:
            events = announce(run, events, departing)
            requested, happened = requests(tables, run, events, now_s)
            waiting, events = waiting + requested, events - happened
            departing = 0
            if happened > 0:
                departing, events, turn = start_transfers(tables, run, events, waiting, turn, now_s)
                waiting -= departing
        for i in range(departing):
            departs(tables, run, run.departing[i], now_s)
        for device in range(len(run.running)):
            if run.running[device] == IDLE and run.next_s[device] <= now_s:
                _take_work(tables, run, device, now_s, bounds)
    return now_s


@inner
def _next_s(run: RunState, events: int) -> float:
    """The second of the next event, on a device or at a link."""
    next_s = run.event_s[0] if events > 0 else np.inf
    for device in range(len(run.running)):
        next_s = min(next_s, run.next_s[device])
    return next_s


@inner
def _ops_end(tables: Tables, run: RunState, now_s: float) -> tuple[int, int]:
    """End all work that ends now. Return (how many ops end, how many crossings they send: the first of `departing`)."""
    ended, departing = 0, 0
    for device in range(len(run.running)):
        op = run.running[device]
        if op != IDLE and run.next_s[device] == now_s:
            run.running[device] = IDLE
            if op != OCCUPIED:
                ended += 1
                run.end_s[op] = now_s
                departing = op_ends(tables, run, op, device, departing, now_s)
    return ended, departing


@inner
def _take_work(tables: Tables, run: RunState, device: int, now_s: float, bounds: bool) -> None:
    """Let a free device receive a tensor that has arrived, else take the first op in line."""
    waits = run.arrived_tail[device] > run.arrived_head[device]
    at = device * tables.tensors + run.arrived_head[device]
    if waits and run.arrived_s[at] <= now_s:
        need = run.arrived[at]
        run.arrived_head[device] += 1
        source = run.device[tables.src[need]]
        _, _, receive_s = transfer_s(tables.link, source, device, tables.tensor_bytes[need])
        end_s = now_s + receive_s
        run.running[device], run.next_s[device] = OCCUPIED, end_s
        while need != NOTHING:
            input_comes(tables, run, tables.dst[need], device, end_s, now_s)
            need = run.chain[need]
    elif not take_op(tables, run, device, now_s, bounds) and waits:
        run.next_s[device] = min(run.next_s[device], run.arrived_s[at])
