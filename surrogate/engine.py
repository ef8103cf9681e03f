"""The compiled event loop: makespans of many mappings, equal to surrogate/reference.py to the last bit.

What the reference finds by stepping through every event is mostly known ahead: without contention a tensor's arrival
is known when its op ends, so inputs are counted then, and an op is put in line for the latest of them. That leaves as
events what devices finish, and with contention what links finish. Two kernels: `_light` where tensors cross freely and
their ends do no work, `_heavy` for the rest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surrogate.jit import inlined, jit
from surrogate.tables import (
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


@jit
def makespans(tables: Tables, placements: Ints, out: Floats) -> None:
    """Fill out[i] with the seconds of placements[i], [n, ops] devices; infinity where a link or a cost is missing.

    NaN where a device does not exist.
    """
    if tables.contention == NO_CONTENTION and not tables.ends_work:
        _light(tables, placements, out)
    else:
        _heavy(tables, placements, out)


# Ops that will be ready at a known time: per device a list sorted by time, then op. Times come nearly in order, so
# sorting in from the end beats a heap.


@inlined
def _insert(times: Floats, items: Ints, head: Ints, tail: Ints, d: int, base: int, at_s: float, item: int) -> None:
    """Sort `item` into list d, whose room starts at `base`."""
    i, first = base + tail[d], base + head[d]
    tail[d] += 1
    while i > first and (times[i - 1] > at_s or (times[i - 1] == at_s and items[i - 1] > item)):
        times[i], items[i] = times[i - 1], items[i - 1]
        i -= 1
    times[i], items[i] = at_s, item


# Ops that are ready: per device a bit for each place in line, and a bit for each word that has one.


@inlined
def _join_line(bits: Words, full: Words, first: Ints, d: int, place: int) -> None:
    """The op at `place` in line is ready on device d."""
    word = place >> 6
    bits[d, word] |= np.int64(1) << (place & 63)
    full[d, word >> 6] |= np.int64(1) << (word & 63)
    if word >> 6 < first[d]:
        first[d] = word >> 6


@inlined
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


@inlined
def _input_comes(
    fifo: bool,
    place: Ints,
    inputs: Ints,
    ready_s: Floats,
    running: Ints,
    next_s: Floats,
    later_s: Floats,
    later: Ints,
    head: Ints,
    tail: Ints,
    bits: Words,
    full: Words,
    first: Ints,
    v: int,
    d: int,
    at_s: float,
    now_s: float,
) -> bool:
    """Op v on device d has one more input from at_s on; whether that makes it ready at once on an idle device.

    The last input puts it in line: at once where the device will not choose before at_s.
    """
    at_s = max(ready_s[v], at_s)
    ready_s[v] = at_s
    inputs[v] -= 1
    if inputs[v] != 0:
        return False
    if fifo or (at_s > now_s and (running[d] == IDLE or at_s > next_s[d])):
        _insert(later_s, later, head, tail, d, d * len(inputs), at_s, v)
    else:
        _join_line(bits, full, first, d, place[v])
    if running[d] != IDLE:
        return False
    next_s[d] = min(next_s[d], at_s)
    return at_s == now_s


@inlined
def _next_op(
    fifo: bool,
    place: Ints,
    op_at: Ints,
    later_s: Floats,
    later: Ints,
    head: Ints,
    tail: Ints,
    bits: Words,
    full: Words,
    first: Ints,
    d: int,
    now_s: float,
) -> int:
    """The op that device d takes now, NOTHING where none is ready."""
    base = d * len(place)
    if fifo:
        if tail[d] > head[d] and later_s[base + head[d]] <= now_s:
            head[d] += 1
            return later[base + head[d] - 1]  # type: ignore[no-any-return]
        return NOTHING
    while tail[d] > head[d] and later_s[base + head[d]] <= now_s:
        _join_line(bits, full, first, d, place[later[base + head[d]]])
        head[d] += 1
    at = _leave_line(bits, full, first, d)
    return op_at[at] if at != NOTHING else NOTHING


@inlined
def _begin(
    fifo: bool,
    place: Ints,
    needed: Ints,
    placement: Ints,
    device: Ints,
    inputs: Ints,
    ready_s: Floats,
    running: Ints,
    next_s: Floats,
    later_s: Floats,
    later: Ints,
    head: Ints,
    tail: Ints,
    bits: Words,
    full: Words,
    first: Ints,
) -> bool:
    """Everything as it is at second 0; False where a device does not exist."""
    running[:], next_s[:], head[:], tail[:] = IDLE, np.inf, 0, 0
    bits[:], full[:], first[:] = 0, 0, full.shape[1]
    for v in range(len(needed)):
        d = placement[v]
        if d < 0 or d >= len(running):
            return False
        device[v], inputs[v], ready_s[v] = d, needed[v], 0.0
        if needed[v] == 0:
            if fifo:
                _insert(later_s, later, head, tail, d, d * len(needed), 0.0, v)
            else:
                _join_line(bits, full, first, d, place[v])
            next_s[d] = 0.0
    return True


@jit
def _light(t: Tables, placements: Ints, out: Floats) -> None:
    """Tensors cross without waiting, and nobody works for it."""
    start, dst, size, needed, cost_s = t.start, t.dst, t.tensor_bytes, t.inputs, t.cost_s
    fifo, place, op_at = t.fifo, t.place, t.op_at
    n, devices = cost_s.shape
    latency_s, bandwidth = t.link[LATENCY].copy(), t.link[BANDWIDTH].copy()
    for d in range(devices):  # so that staying is a crossing that takes no time
        latency_s[d, d] = 0.0
    device, inputs, ready_s = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n)
    running, next_s = np.empty(devices, np.int32), np.empty(devices)
    later_s, later = np.empty(devices * n), np.empty(devices * n, np.int32)
    head, tail, first = np.empty(devices, np.int32), np.empty(devices, np.int32), np.empty(devices, np.int32)
    bits = np.empty((devices, (n + 63) // 64), np.int64)
    full = np.empty((devices, (bits.shape[1] + 63) // 64), np.int64)
    for i in range(len(placements)):
        out[i] = np.nan
        left = n
        if not _begin(
            fifo,
            place,
            needed,
            placements[i],
            device,
            inputs,
            ready_s,
            running,
            next_s,
            later_s,
            later,
            head,
            tail,
            bits,
            full,
            first,
        ):
            continue
        while True:
            now_s, lowest, ties = next_s[0], 0, 1
            for d in range(1, devices):
                at_s = next_s[d]
                ties = 1 if at_s < now_s else ties + (at_s == now_s)
                lowest = d if at_s < now_s else lowest
                now_s = min(now_s, at_s)
            if now_s == np.inf:
                break
            begin, end = lowest, lowest + 1
            if ties > 1:
                begin, end = 0, devices
            woken = False
            for d in range(begin, end):
                v = running[d]
                if v >= 0 and next_s[d] == now_s:
                    running[d] = IDLE
                    left -= 1
                    for k in range(start[v], start[v + 1]):
                        u = dst[k]
                        e = device[u]
                        at_s = max(ready_s[u], now_s + (latency_s[d, e] + size[k] / bandwidth[d, e]))
                        ready_s[u] = at_s
                        inputs[u] -= 1
                        if inputs[u] != 0:
                            continue
                        if fifo or (at_s > now_s and (running[e] == IDLE or at_s > next_s[e])):
                            _insert(later_s, later, head, tail, e, e * n, at_s, u)
                        else:
                            _join_line(bits, full, first, e, place[u])
                        if running[e] == IDLE:
                            next_s[e] = min(next_s[e], at_s)
                            woken = woken or at_s == now_s
            if left == 0:
                break
            if woken:
                begin, end = 0, devices
            for d in range(begin, end):
                if running[d] == IDLE and next_s[d] <= now_s:
                    v = _next_op(fifo, place, op_at, later_s, later, head, tail, bits, full, first, d, now_s)
                    if v != NOTHING:
                        running[d] = v
                        next_s[d] = now_s + cost_s[v, d]
                    elif tail[d] > head[d]:
                        next_s[d] = later_s[d * n + head[d]]
                    else:
                        next_s[d] = np.inf
        out[i] = now_s


# Events to come: a binary heap, by time, then item.


@inlined
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


@inlined
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


@inlined
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


@inlined
def _dequeue(front: Ints, back: Ints, after: Ints, before: Ints, pair: int) -> int:
    """The first of the pair's queue, taken out."""
    k = front[pair]
    front[pair] = after[k]
    if after[k] == NOTHING:
        back[pair] = NOTHING
    else:
        before[after[k]] = NOTHING
    return k  # type: ignore[no-any-return]


@inlined
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


@jit
def _heavy(t: Tables, placements: Ints, out: Floats) -> None:
    """Sending and receiving keep devices busy, and links or ports may be taken.

    A crossing goes by the number of the first need that waits for it; `chain` leads to the others.
    """
    start, src, dst, tensor, size, needed = t.start, t.src, t.dst, t.tensor, t.tensor_bytes, t.inputs
    fifo, place, op_at, cost_s, link = t.fifo, t.place, t.op_at, t.cost_s, t.link
    n, devices = cost_s.shape
    m = len(dst)
    by_link, contended = t.contention == LINK_CONTENTION, t.contention != NO_CONTENTION
    device, inputs, ready_s = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n)
    running, next_s = np.empty(devices, np.int32), np.empty(devices)
    later_s, later = np.empty(devices * n), np.empty(devices * n, np.int32)
    head, tail, first = np.empty(devices, np.int32), np.empty(devices, np.int32), np.empty(devices, np.int32)
    bits = np.empty((devices, (n + 63) // 64), np.int64)
    full = np.empty((devices, (bits.shape[1] + 63) // 64), np.int64)
    arrived_s, arrived = np.empty(devices * t.tensors), np.empty(devices * t.tensors, np.int32)
    arrived_head, arrived_tail = np.empty(devices, np.int32), np.empty(devices, np.int32)
    last = np.empty(devices * t.tensors, np.int32)
    chain, fresh, sent_s = np.empty(m, np.int32), np.empty(m, np.int32), np.empty(m)
    event_s, event = np.empty(2 * m), np.empty(2 * m, np.int32)
    front, back = np.empty(devices * devices, np.int32), np.empty(devices * devices, np.int32)
    after, before = np.empty(m, np.int32), np.empty(m, np.int32)
    held_s, held_turn = np.empty(devices * devices), np.empty(devices * devices, np.int64)
    for i in range(len(placements)):
        out[i] = np.nan
        left, events, waiting, turn = n, 0, 0, 0
        if not _begin(
            fifo,
            place,
            needed,
            placements[i],
            device,
            inputs,
            ready_s,
            running,
            next_s,
            later_s,
            later,
            head,
            tail,
            bits,
            full,
            first,
        ):
            continue
        arrived_head[:], arrived_tail[:], last[:] = 0, 0, NOTHING
        front[:], back[:], held_s[:], held_turn[:] = NOTHING, NOTHING, 0.0, 0
        while True:
            now_s = np.inf
            for d in range(devices):
                now_s = min(now_s, next_s[d])
            if events > 0:
                now_s = min(now_s, event_s[0])
            if now_s == np.inf:
                break
            departing, changed = 0, False
            # 1. Ops end: local consumers have their input; what others need is sent, tensor by tensor.
            for d in range(devices):
                v = running[d]
                if v == IDLE or next_s[d] != now_s:
                    continue
                running[d] = IDLE
                if v == OCCUPIED:
                    continue
                left -= 1
                begin, busy_s = departing, now_s
                for k in range(start[v], start[v + 1]):
                    u = dst[k]
                    e = device[u]
                    if e == d:
                        _input_comes(
                            fifo,
                            place,
                            inputs,
                            ready_s,
                            running,
                            next_s,
                            later_s,
                            later,
                            head,
                            tail,
                            bits,
                            full,
                            first,
                            u,
                            e,
                            now_s,
                            now_s,
                        )
                        continue
                    chain[k] = NOTHING
                    same = tensor[k] * devices + e
                    if last[same] == NOTHING:
                        busy_s += link[SEND, d, e] + size[k] * link[SEND_PER_BYTE, d, e]
                        sent_s[k] = busy_s
                        fresh[departing] = k
                        departing += 1
                    else:
                        chain[last[same]] = k
                    last[same] = k
                if busy_s > now_s:
                    running[d], next_s[d] = OCCUPIED, busy_s
                if contended:
                    for j in range(begin, departing):
                        k = fresh[j]
                        if sent_s[k] > now_s:
                            _push(event_s, event, events, sent_s[k], k)
                            events += 1
                        else:
                            _enqueue(front, back, after, before, sent_s, d * devices + device[dst[k]], k, now_s)
                            waiting += 1
                            changed = True
                    departing = begin
            if left == 0:
                break
            # 2. Sending ends, transfers end: others may start, those of one turn before what they set free.
            while events > 0 and event_s[0] == now_s:
                k = _pop(event_s, event, events)
                events -= 1
                changed = True
                if k != NOTHING:
                    pair = device[src[k]] * devices + device[dst[k]]
                    _enqueue(front, back, after, before, sent_s, pair, k, now_s)
                    waiting += 1
            while changed and waiting > 0:
                changed = False
                turn += 1
                pair = _first_free(by_link, devices, front, sent_s, held_s, held_turn, turn, now_s)
                while pair != NOTHING:
                    k = _dequeue(front, back, after, before, pair)
                    waiting -= 1
                    d, e = pair // devices, pair % devices
                    end_s = now_s + (link[LATENCY, d, e] + size[k] / link[BANDWIDTH, d, e])
                    a, b = (pair, pair) if by_link else (d, e)
                    held_s[a] = held_s[b] = end_s
                    held_turn[a] = held_turn[b] = turn
                    if end_s > now_s:
                        _push(event_s, event, events, end_s, NOTHING)
                        events += 1
                    else:
                        changed = True
                    sent_s[k] = now_s
                    fresh[departing] = k
                    departing += 1
                    pair = _first_free(by_link, devices, front, sent_s, held_s, held_turn, turn, now_s)
            # 3. Tensors depart, and when they arrive is known.
            for j in range(departing):
                k = fresh[j]
                d, e = device[src[k]], device[dst[k]]
                end_s = sent_s[k] + (link[LATENCY, d, e] + size[k] / link[BANDWIDTH, d, e])
                if link[RECEIVE, d, e] + size[k] * link[RECEIVE_PER_BYTE, d, e] > 0:
                    _insert(arrived_s, arrived, arrived_head, arrived_tail, e, e * t.tensors, end_s, k)
                    if running[e] == IDLE:
                        next_s[e] = min(next_s[e], end_s)
                    continue
                while k != NOTHING:
                    _input_comes(
                        fifo,
                        place,
                        inputs,
                        ready_s,
                        running,
                        next_s,
                        later_s,
                        later,
                        head,
                        tail,
                        bits,
                        full,
                        first,
                        dst[k],
                        e,
                        end_s,
                        now_s,
                    )
                    k = chain[k]
            # 4. A free device receives what has arrived, else takes the first op in line.
            for d in range(devices):
                if running[d] != IDLE or next_s[d] > now_s:
                    continue
                if arrived_tail[d] > arrived_head[d] and arrived_s[d * t.tensors + arrived_head[d]] <= now_s:
                    k = arrived[d * t.tensors + arrived_head[d]]
                    arrived_head[d] += 1
                    s = device[src[k]]
                    end_s = now_s + (link[RECEIVE, s, d] + size[k] * link[RECEIVE_PER_BYTE, s, d])
                    running[d], next_s[d] = OCCUPIED, end_s
                    while k != NOTHING:
                        _input_comes(
                            fifo,
                            place,
                            inputs,
                            ready_s,
                            running,
                            next_s,
                            later_s,
                            later,
                            head,
                            tail,
                            bits,
                            full,
                            first,
                            dst[k],
                            d,
                            end_s,
                            now_s,
                        )
                        k = chain[k]
                    continue
                v = _next_op(fifo, place, op_at, later_s, later, head, tail, bits, full, first, d, now_s)
                next_s[d] = np.inf
                if v != NOTHING:
                    running[d], next_s[d] = v, now_s + cost_s[v, d]
                    continue
                if tail[d] > head[d]:
                    next_s[d] = later_s[d * n + head[d]]
                if arrived_tail[d] > arrived_head[d]:
                    next_s[d] = min(next_s[d], arrived_s[d * t.tensors + arrived_head[d]])
        out[i] = now_s
