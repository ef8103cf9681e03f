"""The compiled event loop: makespans of many mappings, equal to surrogate/simulate/reference.py to the last bit.

What the reference finds by stepping through every event is mostly known ahead: without contention a tensor's arrival
is known when its op ends, so inputs are counted then, and an op is put in line for the latest of them. That leaves as
events what devices finish, and with contention what links finish. Two kernels: `_light` where tensors cross freely and
their ends do no work, `_heavy` for the rest. They and all they call share a file, for compiled code is cached by file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surrogate.jit import jit, kernel, part
from surrogate.simulate.arrays import (
    BANDWIDTH,
    LATENCY,
    LINK_CONTENTION,
    NO_CONTENTION,
    RECEIVE,
    RECEIVE_PER_BYTE,
    SEND,
    SEND_PER_BYTE,
    Tables,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Words = NDArray[np.int64]

NOTHING = -1
# What a device runs when it runs no op.
IDLE, OCCUPIED = -1, -2

# Where the lowest bit of x is: x & -x times the number has it in its top six bits (de Bruijn).
DE_BRUIJN = 0x03F79D71B4CB0A89
LOWEST = np.zeros(64, np.int64)
for _bit in range(64):
    LOWEST[((DE_BRUIJN << _bit) >> 58) & 63] = _bit


class Work(NamedTuple):
    """What changes during a run, allocated once for many. v: op, d: device, k: need.

    A crossing goes by the number of the first need that waits for it; `chain` leads to the others.
    """

    device: Ints  # [v] the placement
    inputs: Ints  # [v] inputs still to come
    ready_s: Floats  # [v] the latest input so far
    running: Ints  # [d] an op, IDLE or OCCUPIED
    next_s: Floats  # [d] when that ends; for an idle device when something may start
    later_s: Floats  # [d * ops] ops to become ready: lists by time, from head to tail
    later: Ints
    head: Ints  # [d]
    tail: Ints
    bits: Words  # [d, word] ready ops: a bit for each place in line
    full: Words  # [d, word of words] a bit for each word that has one
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
    held_s: Floats  # [src * devices + dst], or [d]: a link or a port is taken until then
    held_turn: Words


@jit
def workspace(t: Tables) -> Work:
    """Room for runs over these tables."""
    n, devices = t.cost_s.shape
    contended = t.contention != NO_CONTENTION
    m = len(t.dst) if contended or t.ends_work else 0
    tensors = t.tensors * devices if contended or t.ends_work else 0
    queued = len(t.dst) if contended else 0
    pairs = devices * devices
    words = (n + 63) // 64
    return Work(
        np.empty(n, np.int32),
        np.empty(n, np.int32),
        np.empty(n),
        np.empty(devices, np.int32),
        np.empty(devices),
        np.empty(devices * n),
        np.empty(devices * n, np.int32),
        np.empty(devices, np.int32),
        np.empty(devices, np.int32),
        np.empty((devices, words), np.int64),
        np.empty((devices, (words + 63) // 64), np.int64),
        np.empty(devices, np.int32),
        np.empty(tensors),
        np.empty(tensors, np.int32),
        np.empty(devices, np.int32),
        np.empty(devices, np.int32),
        np.empty(tensors, np.int32),
        np.empty(m, np.int32),
        np.empty(m, np.int32),
        np.empty(m),
        np.empty(2 * queued),
        np.empty(2 * queued, np.int32),
        np.empty(pairs, np.int32),
        np.empty(pairs, np.int32),
        np.empty(queued, np.int32),
        np.empty(queued, np.int32),
        np.empty(pairs),
        np.empty(pairs, np.int64),
    )


@jit
def makespans(t: Tables, placements: Ints, out: Floats) -> None:
    """Fill out[i] with the seconds of placements[i], [n, ops] devices; infinity where a link or a cost is missing.

    NaN where a device does not exist.
    """
    w = workspace(t)
    if t.contention == NO_CONTENTION and not t.ends_work:
        _light(t, w, placements, out)
    else:
        _heavy(t, w, placements, out)


# Ops that will be ready at a known time: per device a list sorted by time, then op. Times come nearly in order, so
# sorting in from the end beats a heap.


@part
def _insert(times: Floats, items: Ints, head: Ints, tail: Ints, d: int, base: int, at_s: float, item: int) -> None:
    """Sort `item` into list d, whose room starts at `base`."""
    i, first = base + tail[d], base + head[d]
    tail[d] += 1
    while i > first and (times[i - 1] > at_s or (times[i - 1] == at_s and items[i - 1] > item)):
        times[i], items[i] = times[i - 1], items[i - 1]
        i -= 1
    times[i], items[i] = at_s, item


# Ops that are ready: per device a bit for each place in line, and a bit for each word that has one.


@part
def _join_line(bits: Words, full: Words, first: Ints, d: int, place: int) -> None:
    """The op at `place` in line is ready on device d."""
    word = place >> 6
    bits[d, word] |= np.int64(1) << (place & 63)
    full[d, word >> 6] |= np.int64(1) << (word & 63)
    if word >> 6 < first[d]:
        first[d] = word >> 6


@part
def _leave_line(bits: Words, full: Words, first: Ints, d: int) -> int:
    """The first place in device d's line, taken out; NOTHING where the line is empty."""
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


@part
def _input_comes(t: Tables, w: Work, v: int, d: int, at_s: float, now_s: float) -> bool:
    """Op v on device d has one more input from at_s on; whether that makes it ready at once on an idle device.

    The last input puts it in line: at once where the device will not choose before at_s.
    """
    at_s = max(w.ready_s[v], at_s)
    w.ready_s[v] = at_s
    w.inputs[v] -= 1
    if w.inputs[v] != 0:
        return False
    if t.fifo or (at_s > now_s and (w.running[d] == IDLE or at_s > w.next_s[d])):
        _insert(w.later_s, w.later, w.head, w.tail, d, d * len(t.inputs), at_s, v)
    else:
        _join_line(w.bits, w.full, w.first, d, t.place[v])
    if w.running[d] != IDLE:
        return False
    w.next_s[d] = min(w.next_s[d], at_s)
    return at_s == now_s


@part
def _next_op(t: Tables, w: Work, d: int, now_s: float) -> int:
    """The op that device d takes now, NOTHING where none is ready."""
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


@part
def _take_op(t: Tables, w: Work, d: int, now_s: float) -> bool:
    """Device d starts the next op; where none is ready it sleeps until the next one is, and the answer is no."""
    v = _next_op(t, w, d, now_s)
    if v != NOTHING:
        w.running[d], w.next_s[d] = v, now_s + t.cost_s[v, d]
        return True
    w.next_s[d] = np.inf
    if w.tail[d] > w.head[d]:
        w.next_s[d] = w.later_s[d * len(t.inputs) + w.head[d]]
    return False


@part
def _begin(t: Tables, w: Work, placements: Ints, row: int) -> bool:
    """Everything as it is at second 0; False where a device does not exist."""
    w.running[:], w.next_s[:], w.head[:], w.tail[:] = IDLE, np.inf, 0, 0
    w.bits[:], w.full[:], w.first[:] = 0, 0, w.full.shape[1]
    for v in range(len(t.inputs)):
        d = placements[row, v]
        if d < 0 or d >= len(w.running):
            return False
        w.device[v], w.inputs[v], w.ready_s[v] = d, t.inputs[v], 0.0
        if t.inputs[v] == 0:
            if t.fifo:
                _insert(w.later_s, w.later, w.head, w.tail, d, d * len(t.inputs), 0.0, v)
            else:
                _join_line(w.bits, w.full, w.first, d, t.place[v])
            w.next_s[d] = 0.0
    return True


@kernel
def _light(t: Tables, w: Work, placements: Ints, out: Floats) -> None:
    """Tensors cross without waiting, and nobody works for it."""
    n, devices = t.cost_s.shape
    for row in range(len(placements)):
        out[row] = np.nan
        left = n if _begin(t, w, placements, row) else 0
        while left > 0:
            now_s, begin, ties = w.next_s[0], 0, 1
            for d in range(1, devices):
                at_s = w.next_s[d]
                ties = 1 if at_s < now_s else ties + (at_s == now_s)
                begin = d if at_s < now_s else begin
                now_s = min(now_s, at_s)
            out[row] = now_s
            if now_s == np.inf:
                break
            # Most often one device is due, and wakes no other.
            end = begin + 1
            if ties > 1:
                begin, end = 0, devices
            woken = False
            for d in range(begin, end):
                v = w.running[d]
                if v >= 0 and w.next_s[d] == now_s:
                    w.running[d] = IDLE
                    left -= 1
                    for k in range(t.start[v], t.start[v + 1]):
                        u = t.dst[k]
                        e = w.device[u]
                        # Staying is a crossing over a link that takes no time.
                        at_s = now_s + (t.link[LATENCY, d, e] + t.tensor_bytes[k] / t.link[BANDWIDTH, d, e])
                        if _input_comes(t, w, u, e, at_s, now_s):
                            woken = True
            if woken:
                begin, end = 0, devices
            for d in range(begin, end):
                if w.running[d] == IDLE and w.next_s[d] <= now_s:
                    _take_op(t, w, d, now_s)


# Events to come: a binary heap, by time, then item.


@part
def _push(times: Floats, items: Ints, count: int, at_s: float, item: int) -> None:
    """Into a heap of `count` items."""
    i = count
    while i > 0:
        up = (i - 1) >> 1
        if times[up] < at_s or (times[up] == at_s and items[up] <= item):
            break
        times[i], items[i] = times[up], items[up]
        i = up
    times[i], items[i] = at_s, item


@part
def _pop(times: Floats, items: Ints, count: int) -> int:
    """The first of a heap of `count` items, taken out."""
    taken, at_s, item = items[0], times[count - 1], items[count - 1]
    i, low = 0, 1
    while low < count - 1:
        right = low + 1
        if right < count - 1 and (
            times[right] < times[low] or (times[right] == times[low] and items[right] < items[low])
        ):
            low = right
        if at_s < times[low] or (at_s == times[low] and item <= items[low]):
            break
        times[i], items[i] = times[low], items[low]
        i = low
        low = 2 * i + 1
    times[i], items[i] = at_s, item
    return taken  # type: ignore[no-any-return]


# Crossings that wait for a link: per ordered device pair a linked list, by time of request, then need.


@part
def _enqueue(
    front: Ints, back: Ints, after: Ints, before: Ints, sent_s: Floats, pair: int, k: int, now_s: float
) -> None:
    """Crossing k wants to start; of those that came at the same time the one of the earlier need is first."""
    sent_s[k] = now_s
    i = back[pair]
    while i != NOTHING and sent_s[i] == now_s and i > k:
        i = before[i]
    j = front[pair] if i == NOTHING else after[i]
    before[k], after[k] = i, j
    if i == NOTHING:
        front[pair] = k
    else:
        after[i] = k
    if j == NOTHING:
        back[pair] = k
    else:
        before[j] = k


@part
def _dequeue(front: Ints, back: Ints, after: Ints, before: Ints, pair: int) -> int:
    """The first of the pair's queue, taken out."""
    k = front[pair]
    front[pair] = after[k]
    if after[k] == NOTHING:
        back[pair] = NOTHING
    else:
        before[after[k]] = NOTHING
    return k  # type: ignore[no-any-return]


@part
def _first_free(
    by_link: bool, devices: int, front: Ints, sent_s: Floats, held_s: Floats, held_turn: Words, turn: int, now_s: float
) -> int:
    """The device pair whose next transfer may start now: that which waits longest; NOTHING where none may."""
    best = NOTHING
    for pair in range(devices * devices):
        k = front[pair]
        if k == NOTHING:
            continue
        a, b = (pair, pair) if by_link else (pair // devices, pair % devices)
        if max(held_s[a], held_s[b]) > now_s or held_turn[a] == turn or held_turn[b] == turn:
            continue
        if best == NOTHING or sent_s[k] < sent_s[front[best]] or (sent_s[k] == sent_s[front[best]] and k < front[best]):
            best = pair
    return best


@part
def _op_ends(t: Tables, w: Work, v: int, d: int, departing: int, now_s: float) -> int:
    """Local consumers have their input; what others need is sent, tensor by tensor, and listed as departing."""
    devices = len(w.running)
    busy_s = now_s
    for k in range(t.start[v], t.start[v + 1]):
        u = t.dst[k]
        e = w.device[u]
        if e == d:
            _input_comes(t, w, u, e, now_s, now_s)
            continue
        w.chain[k] = NOTHING
        same = t.tensor[k] * devices + e
        if w.last[same] == NOTHING:
            busy_s += t.link[SEND, d, e] + t.tensor_bytes[k] * t.link[SEND_PER_BYTE, d, e]
            w.sent_s[k] = busy_s
            w.departing[departing] = k
            departing += 1
        else:
            w.chain[w.last[same]] = k
        w.last[same] = k
    if busy_s > now_s:
        w.running[d], w.next_s[d] = OCCUPIED, busy_s
    return departing


@part
def _request(w: Work, k: int, src: int, dst: int, now_s: float) -> None:
    """Crossing k wants to start now."""
    pair = w.device[src] * len(w.running) + w.device[dst]
    _enqueue(w.front, w.back, w.after, w.before, w.sent_s, pair, k, now_s)


@part
def _start(t: Tables, w: Work, pair: int, turn: int, now_s: float) -> float:
    """The first of the pair's queue holds its link, or its ports, until the returned second."""
    k = _dequeue(w.front, w.back, w.after, w.before, pair)
    d, e = pair // len(w.running), pair % len(w.running)
    end_s: float = now_s + (t.link[LATENCY, d, e] + t.tensor_bytes[k] / t.link[BANDWIDTH, d, e])
    a, b = (pair, pair) if t.contention == LINK_CONTENTION else (d, e)
    w.held_s[a] = w.held_s[b] = end_s
    w.held_turn[a] = w.held_turn[b] = turn
    w.sent_s[k] = now_s
    return end_s


@part
def _departs(t: Tables, w: Work, k: int, now_s: float) -> None:
    """When a crossing arrives is known; who receives without work has it then."""
    d, e = w.device[t.src[k]], w.device[t.dst[k]]
    size = t.tensor_bytes[k]
    end_s = w.sent_s[k] + (t.link[LATENCY, d, e] + size / t.link[BANDWIDTH, d, e])
    if t.link[RECEIVE, d, e] + size * t.link[RECEIVE_PER_BYTE, d, e] > 0:
        _insert(w.arrived_s, w.arrived, w.arrived_head, w.arrived_tail, e, e * t.tensors, end_s, k)
        if w.running[e] == IDLE:
            w.next_s[e] = min(w.next_s[e], end_s)
        return
    while k != NOTHING:
        _input_comes(t, w, t.dst[k], e, end_s, now_s)
        k = w.chain[k]


@part
def _take_work(t: Tables, w: Work, d: int, now_s: float) -> None:
    """A free device receives what has arrived, else takes the first op in line."""
    waits = w.arrived_tail[d] > w.arrived_head[d]
    at = d * t.tensors + w.arrived_head[d]
    if waits and w.arrived_s[at] <= now_s:
        k = w.arrived[at]
        w.arrived_head[d] += 1
        s = w.device[t.src[k]]
        end_s = now_s + (t.link[RECEIVE, s, d] + t.tensor_bytes[k] * t.link[RECEIVE_PER_BYTE, s, d])
        w.running[d], w.next_s[d] = OCCUPIED, end_s
        while k != NOTHING:
            _input_comes(t, w, t.dst[k], d, end_s, now_s)
            k = w.chain[k]
    elif not _take_op(t, w, d, now_s) and waits:
        w.next_s[d] = min(w.next_s[d], w.arrived_s[at])


@kernel
def _heavy(t: Tables, w: Work, placements: Ints, out: Floats) -> None:
    """Sending and receiving keep devices busy, and links or ports may be taken."""
    n, devices = t.cost_s.shape
    by_link, contended = t.contention == LINK_CONTENTION, t.contention != NO_CONTENTION
    for row in range(len(placements)):
        out[row] = np.nan
        events, waiting, turn = 0, 0, 0
        left = n if _begin(t, w, placements, row) else 0
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
                        departing = _op_ends(t, w, v, d, departing, now_s)
            if contended:
                for i in range(departing):
                    k = w.departing[i]
                    _push(w.event_s, w.event, events, w.sent_s[k], k)
                    events += 1
                departing = 0
            # Sending ends and transfers end: others may start, those of one turn before what they set free.
            while events > 0 and w.event_s[0] == now_s:
                k = _pop(w.event_s, w.event, events)
                events -= 1
                changed = True
                if k != NOTHING:
                    _request(w, k, t.src[k], t.dst[k], now_s)
                    waiting += 1
            while changed and waiting > 0:
                changed = False
                turn += 1
                pair = _first_free(by_link, devices, w.front, w.sent_s, w.held_s, w.held_turn, turn, now_s)
                while pair != NOTHING:
                    w.departing[departing] = w.front[pair]
                    departing += 1
                    waiting -= 1
                    end_s = _start(t, w, pair, turn, now_s)
                    if end_s > now_s:
                        _push(w.event_s, w.event, events, end_s, NOTHING)
                        events += 1
                    else:
                        changed = True
                    pair = _first_free(by_link, devices, w.front, w.sent_s, w.held_s, w.held_turn, turn, now_s)
            for i in range(departing):
                _departs(t, w, w.departing[i], now_s)
            for d in range(devices):
                if w.running[d] == IDLE and w.next_s[d] <= now_s:
                    _take_work(t, w, d, now_s)
