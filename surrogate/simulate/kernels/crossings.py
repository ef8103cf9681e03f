"""The crossings of the compiled event loop: what an ending op sends, the queues before links, and arrivals."""

from __future__ import annotations

from surrogate.jit import inner
from surrogate.simulate.kernels.arrays import LINK_CONTENTION, Tables
from surrogate.simulate.kernels.run_state import (
    IDLE,
    NOTHING,
    OCCUPIED,
    Floats,
    Ints,
    RunState,
    input_comes,
    insert,
)
from surrogate.simulate.kernels.transfer import transfer_s

# Future events: a binary heap, by time, then item.


@inner
def _push(times: Floats, items: Ints, count: int, at_s: float, item: int) -> None:
    """Push `item` into a heap of `count` items."""
    i = count
    while i > 0:
        up = (i - 1) >> 1
        if times[up] < at_s or (times[up] == at_s and items[up] <= item):
            break
        times[i], items[i] = times[up], items[up]
        i = up
    times[i], items[i] = at_s, item


@inner
def _pop(times: Floats, items: Ints, count: int) -> int:
    """Pop the first item of a heap of `count` items."""
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


@inner
def _enqueue(w: RunState, pair: int, k: int, now_s: float) -> None:
    """Queue crossing k, which wants to start now. Among requests of the same time the earlier need is first."""
    w.sent_s[k] = now_s
    i = w.back[pair]
    if i == NOTHING:
        w.lined[w.lines[0]], w.line_of[pair] = pair, w.lines[0]
        w.lines[0] += 1
    while i != NOTHING and w.sent_s[i] == now_s and i > k:
        i = w.before[i]
    j = w.front[pair] if i == NOTHING else w.after[i]
    w.before[k], w.after[k] = i, j
    if i == NOTHING:
        w.front[pair] = k
    else:
        w.after[i] = k
    if j == NOTHING:
        w.back[pair] = k
    else:
        w.before[j] = k


@inner
def _dequeue(w: RunState, pair: int) -> int:
    """Take the first crossing out of the pair's queue and return it."""
    k = w.front[pair]
    w.front[pair] = w.after[k]
    if w.after[k] == NOTHING:
        w.back[pair] = NOTHING
        w.lines[0] -= 1
        last = w.lined[w.lines[0]]
        w.lined[w.line_of[pair]], w.line_of[last] = last, w.line_of[pair]
    else:
        w.before[w.after[k]] = NOTHING
    return k  # type: ignore[no-any-return]


@inner
def _first_free(t: Tables, w: RunState, turn: int, now_s: float) -> int:
    """Return the device pair whose first crossing waits longest among those that may start now; NOTHING if none may."""
    best, devices = NOTHING, len(w.running)
    for i in range(w.lines[0]):  # the order of the pairs does not change which of them waits longest
        pair = w.lined[i]
        k = w.front[pair]
        a, b = (pair, pair) if t.contention == LINK_CONTENTION else (pair // devices, pair % devices)
        if max(w.held_s[a], w.held_s[b]) > now_s or w.held_turn[a] == turn or w.held_turn[b] == turn:
            continue
        if best == NOTHING or _waits_longer(w, k, w.front[best]):
            best = pair
    return best


@inner
def _waits_longer(w: RunState, k: int, other: int) -> bool:
    return w.sent_s[k] < w.sent_s[other] or (w.sent_s[k] == w.sent_s[other] and k < other)


@inner
def no_crossings(w: RunState) -> None:
    """Set the state of crossings to second 0, when no tensor is on its way."""
    w.arrived_head[:], w.arrived_tail[:], w.last[:] = 0, 0, NOTHING
    w.front[:], w.back[:], w.held_s[:], w.held_turn[:], w.lines[0] = NOTHING, NOTHING, 0.0, 0, 0


@inner
def op_ends(t: Tables, w: RunState, v: int, d: int, departing: int, now_s: float) -> int:
    """Give local consumers of op v their input. List the tensors that other devices need as departing, one by one.

    Return how many crossings are listed in `departing`.
    """
    devices = len(w.running)
    busy_s = now_s
    for k in range(t.start[v], t.start[v + 1]):
        u = t.dst[k]
        e = w.device[u]
        if e == d:
            input_comes(t, w, u, e, now_s, now_s)
            continue
        w.chain[k] = NOTHING
        same = t.tensor[k] * devices + e
        if w.last[same] == NOTHING:
            send_s, _, _ = transfer_s(t.link, d, e, t.tensor_bytes[k])
            busy_s += send_s
            w.sent_s[k] = busy_s
            w.departing[departing] = k
            departing += 1
        else:
            w.chain[w.last[same]] = k
        w.last[same] = k
    if busy_s > now_s:
        w.running[d], w.next_s[d] = OCCUPIED, busy_s
    return departing


@inner
def announce(w: RunState, events: int, departing: int) -> int:
    """Let the departing crossings request their link when they are sent; return the number of future events."""
    for i in range(departing):
        k = w.departing[i]
        _push(w.event_s, w.event, events + i, w.sent_s[k], k)
    return events + departing


@inner
def requests(t: Tables, w: RunState, events: int, now_s: float) -> tuple[int, int]:
    """Queue the crossings that want to start now. Return (how many they are, how many events happened now).

    An event is such a request, or the end of a transfer.
    """
    requested, happened = 0, 0
    while happened < events and w.event_s[0] == now_s:
        k = _pop(w.event_s, w.event, events - happened)
        happened += 1
        if k != NOTHING:
            pair = w.device[t.src[k]] * len(w.running) + w.device[t.dst[k]]
            _enqueue(w, pair, k, now_s)
            requested += 1
    return requested, happened


@inner
def start_transfers(t: Tables, w: RunState, events: int, waiting: int, turn: int, now_s: float) -> tuple[int, int, int]:
    """Start the crossings whose link or ports are free. A transfer that takes no time frees its link for the next turn.

    Returns how many started (the first of `departing`), how many events are to come, and the turn.
    """
    departing, changed = 0, True
    while changed and departing < waiting:
        changed = False
        turn += 1
        pair = _first_free(t, w, turn, now_s)
        while pair != NOTHING:
            w.departing[departing] = w.front[pair]
            departing += 1
            end_s = _starts(t, w, pair, turn, now_s)
            if end_s > now_s:
                _push(w.event_s, w.event, events, end_s, NOTHING)
                events += 1
            else:
                changed = True
            pair = _first_free(t, w, turn, now_s)
    return departing, events, turn


@inner
def _starts(t: Tables, w: RunState, pair: int, turn: int, now_s: float) -> float:
    """Start the first crossing of the pair's queue. It holds its link, or its ports, until the returned second."""
    k = _dequeue(w, pair)
    d, e = pair // len(w.running), pair % len(w.running)
    _, way_s, _ = transfer_s(t.link, d, e, t.tensor_bytes[k])
    end_s: float = now_s + way_s
    a, b = (pair, pair) if t.contention == LINK_CONTENTION else (d, e)
    w.held_s[a] = w.held_s[b] = end_s
    w.held_turn[a] = w.held_turn[b] = turn
    w.sent_s[k] = now_s
    return end_s


@inner
def departs(t: Tables, w: RunState, k: int, now_s: float) -> None:
    """Compute when crossing k arrives. Then list it as arrived if receiving is work; else give it to its consumers."""
    d, e = w.device[t.src[k]], w.device[t.dst[k]]
    _, way_s, receive_s = transfer_s(t.link, d, e, t.tensor_bytes[k])
    end_s = w.sent_s[k] + way_s
    if receive_s > 0:
        insert(w.arrived_s, w.arrived, w.arrived_head, w.arrived_tail, e, e * t.tensors, end_s, k)
        if w.running[e] == IDLE:
            w.next_s[e] = min(w.next_s[e], end_s)
        return
    while k != NOTHING:
        input_comes(t, w, t.dst[k], e, end_s, now_s)
        k = w.chain[k]
