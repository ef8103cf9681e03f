"""The state of a compiled run, and how a device takes its ops: they become ready at a known time, then wait in line."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surrogate.jit import inner, jit
from surrogate.simulate.kernels.arrays import NO_CONTENTION, Tables

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Words = NDArray[np.int64]

NOTHING = -1
# What `running` says of a device that runs no op. OCCUPIED: it sends or receives.
IDLE, OCCUPIED = -1, -2

# Finds the position of the lowest bit of x: the top six bits of (x & -x) * DE_BRUIJN are its index in LOWEST.
DE_BRUIJN = 0x03F79D71B4CB0A89
LOWEST = np.zeros(64, np.int64)
for _bit in range(64):
    LOWEST[((DE_BRUIJN << _bit) >> 58) & 63] = _bit


class RunState(NamedTuple):
    """The variables of a run, allocated once for many runs. v: op, d: device, k: need.

    A crossing has the number of the first need that waits for it; `chain` leads to the other needs.
    """

    device: Ints  # [v] the mapping
    inputs: Ints  # [v] inputs still to come
    ready_s: Floats  # [v] when the latest input so far arrives
    running: Ints  # [d] an op, IDLE or OCCUPIED
    next_s: Floats  # [d] when that ends; for an idle device when something may start
    later_s: Floats  # [d * ops] ops that will be ready at a known time: lists by time, from head to tail
    later: Ints
    head: Ints  # [d]
    tail: Ints
    bits: Words  # [d, word] ready ops: a bit for each place in line
    full: Words  # [d, word of words] a bit for each word of `bits` that has a bit
    first: Ints  # [d] no word of words before this one has a bit
    arrived_s: Floats  # [d * tensors] crossings to receive: lists by time, from head to tail
    arrived: Ints
    arrived_head: Ints  # [d]
    arrived_tail: Ints
    last: Ints  # [tensor * devices + d] the last need in the chain of a crossing
    chain: Ints  # [k]
    departing: Ints  # crossings that start now or, without contention, later
    sent_s: Floats  # [k] when a crossing wants to start
    event_s: Floats  # a heap: requests to come, and transfers that end
    event: Ints
    front: Ints  # [src * devices + dst] queues of crossings that wait for a link, linked by after and before
    back: Ints
    after: Ints  # [k]
    before: Ints
    lined: Ints  # [src * devices + dst] the pairs that have a queue, in any order: the first `lines[0]`
    line_of: Ints  # [src * devices + dst] the position of such a pair in `lined`
    lines: Ints  # [1]
    held_s: Floats  # [src * devices + dst], or [d]: when a link or a port will be free
    held_turn: Words  # as held_s: the turn in which it was last taken
    left_s: Floats  # [d] seconds of the ops there that have not begun
    end_s: Floats  # [v] when v ended
    least_s: Floats  # [1] the makespan is at least this


@jit
def workspace(tables: Tables) -> RunState:
    """Allocate the state of runs over `tables`."""
    n, devices = tables.cost_s.shape
    contended = tables.contention != NO_CONTENTION
    m = len(tables.dst) if contended or tables.ends_work else 0
    tensors = tables.tensors * devices if contended or tables.ends_work else 0
    queued = len(tables.dst) if contended else 0
    pairs = devices * devices
    words = (n + 63) // 64
    return RunState(
        device=np.empty(n, np.int32),
        inputs=np.empty(n, np.int32),
        ready_s=np.empty(n),
        running=np.empty(devices, np.int32),
        next_s=np.empty(devices),
        later_s=np.empty(devices * n),
        later=np.empty(devices * n, np.int32),
        head=np.empty(devices, np.int32),
        tail=np.empty(devices, np.int32),
        bits=np.empty((devices, words), np.int64),
        full=np.empty((devices, (words + 63) // 64), np.int64),
        first=np.empty(devices, np.int32),
        arrived_s=np.empty(tensors),
        arrived=np.empty(tensors, np.int32),
        arrived_head=np.empty(devices, np.int32),
        arrived_tail=np.empty(devices, np.int32),
        last=np.empty(tensors, np.int32),
        chain=np.empty(m, np.int32),
        departing=np.empty(m, np.int32),
        sent_s=np.empty(m),
        event_s=np.empty(2 * queued),
        event=np.empty(2 * queued, np.int32),
        front=np.empty(pairs, np.int32),
        back=np.empty(pairs, np.int32),
        after=np.empty(queued, np.int32),
        before=np.empty(queued, np.int32),
        lined=np.empty(pairs, np.int32),
        line_of=np.empty(pairs, np.int32),
        lines=np.empty(1, np.int32),
        held_s=np.empty(pairs),
        held_turn=np.empty(pairs, np.int64),
        left_s=np.empty(devices),
        end_s=np.empty(n),
        least_s=np.empty(1),
    )


# Ops that will be ready at a known time: per device a list sorted by time, then op. Times come nearly in order, so
# insertion from the end beats a heap.


@inner
def insert(times: Floats, items: Ints, head: Ints, tail: Ints, d: int, base: int, at_s: float, item: int) -> None:
    """Sort `item` into list d, whose memory starts at index `base`."""
    i, first = base + tail[d], base + head[d]
    tail[d] += 1
    while i > first and (times[i - 1] > at_s or (times[i - 1] == at_s and items[i - 1] > item)):
        times[i], items[i] = times[i - 1], items[i - 1]
        i -= 1
    times[i], items[i] = at_s, item


# Ops that are ready: per device a bit for each place in line, and a bit for each word that has a bit.


@inner
def _join_line(bits: Words, full: Words, first: Ints, d: int, place: int) -> None:
    """Put the op at `place` in line among the ready ops of device d."""
    word = place >> 6
    bits[d, word] |= np.int64(1) << (place & 63)
    full[d, word >> 6] |= np.int64(1) << (word & 63)
    if word >> 6 < first[d]:
        first[d] = word >> 6


@inner
def _leave_line(bits: Words, full: Words, first: Ints, d: int) -> int:
    """Take the first place out of device d's line and return it; NOTHING if the line is empty."""
    i, end = first[d], full.shape[1]
    while i < end and full[d, i] == 0:
        i += 1
    first[d] = i
    if i == end:
        return NOTHING
    x = full[d, i]
    word = (i << 6) | LOWEST[(((x & -x) * DE_BRUIJN) >> 58) & 63]
    y = bits[d, word]
    place = (word << 6) | LOWEST[(((y & -y) * DE_BRUIJN) >> 58) & 63]
    y &= y - 1
    bits[d, word] = y
    if y == 0:
        full[d, i] = x & (x - 1)
    return place  # type: ignore[no-any-return]


@inner
def input_comes(t: Tables, w: RunState, v: int, d: int, at_s: float, now_s: float) -> bool:
    """Give op v on device d one more input from at_s on. Return whether the op is now ready and its device idle.

    The last input puts the op in line: at once if the device chooses no op before at_s, else at at_s.
    """
    at_s = max(w.ready_s[v], at_s)
    w.ready_s[v] = at_s
    w.inputs[v] -= 1
    if w.inputs[v] != 0:
        return False
    if t.fifo or (at_s > now_s and (w.running[d] == IDLE or at_s > w.next_s[d])):
        insert(w.later_s, w.later, w.head, w.tail, d, d * len(t.inputs), at_s, v)
    else:
        _join_line(w.bits, w.full, w.first, d, t.place[v])
    if w.running[d] != IDLE:
        return False
    w.next_s[d] = min(w.next_s[d], at_s)
    return at_s == now_s


@inner
def _next_op(t: Tables, w: RunState, d: int, now_s: float) -> int:
    """Take the next op out of device d's line and return it; NOTHING if no op is ready."""
    base = d * len(t.inputs)
    if t.fifo:
        if w.tail[d] > w.head[d] and w.later_s[base + w.head[d]] <= now_s:
            w.head[d] += 1
            return w.later[base + w.head[d] - 1]  # type: ignore[no-any-return]
        return NOTHING
    while w.tail[d] > w.head[d] and w.later_s[base + w.head[d]] <= now_s:
        _join_line(w.bits, w.full, w.first, d, t.place[w.later[base + w.head[d]]])
        w.head[d] += 1
    at = _leave_line(w.bits, w.full, w.first, d)
    return t.op_at[at] if at != NOTHING else NOTHING


@inner
def take_op(t: Tables, w: RunState, d: int, now_s: float, bounds: bool) -> bool:
    """Start the next op on device d and return True. If no op is ready, let the device sleep until the next one is.

    bounds: whether to update `left_s` and `least_s`. The bound: the ops left on the device run after this one, one by
    one.
    """
    v = _next_op(t, w, d, now_s)
    if v != NOTHING:
        cost_s = t.cost_s[v, d]
        w.running[d], w.next_s[d] = v, now_s + cost_s
        if bounds:
            w.left_s[d] -= cost_s
            w.least_s[0] = max(w.least_s[0], now_s + cost_s + max(w.left_s[d], t.tail_s[v]))
        return True
    w.next_s[d] = np.inf
    if w.tail[d] > w.head[d]:
        w.next_s[d] = w.later_s[d * len(t.inputs) + w.head[d]]
    return False


@inner
def begins(t: Tables, w: RunState, rows: Ints, row: int) -> bool:
    """Set the state to second 0 under the mapping rows[row]; return False if a device does not exist."""
    for v in range(len(t.inputs)):
        d = rows[row, v]
        if d < 0 or d >= len(w.running):
            return False
        w.device[v] = d
    restart(t, w)
    return True


@inner
def restart(t: Tables, w: RunState) -> None:
    """Set the state to second 0 under the mapping in `w.device`."""
    w.running[:], w.next_s[:], w.head[:], w.tail[:] = IDLE, np.inf, 0, 0
    w.bits[:], w.full[:], w.first[:] = 0, 0, w.full.shape[1]
    w.left_s[:], w.least_s[0] = 0.0, 0.0
    for v in range(len(t.inputs)):
        d = w.device[v]
        w.inputs[v], w.ready_s[v] = t.inputs[v], 0.0
        w.left_s[d] += t.cost_s[v, d]
        if t.inputs[v] == 0:
            if t.fifo:
                insert(w.later_s, w.later, w.head, w.tail, d, d * len(t.inputs), 0.0, v)
            else:
                _join_line(w.bits, w.full, w.first, d, t.place[v])
            w.next_s[d] = 0.0
