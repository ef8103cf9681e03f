"""The compiled event loop for a search that changes one mapping a little, again and again.

A run ends as soon as its makespan is sure to be above a limit. Until the first moved op has its first input, a run is
the same as the kept run. So a run begins at the last state that was saved of the kept run before that time. Makespans
equal those of `event_loop` to the last bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surrogate.jit import inner, jit
from surrogate.simulate.kernels.arrays import NO_CONTENTION, Tables
from surrogate.simulate.kernels.event_loop import heavy, light
from surrogate.simulate.kernels.run_state import Floats, Ints, RunState, Words, restart

SAVES = 12  # saved states per run, evenly spread over the ends of ops
NOWHERE = -1
NEVER = np.inf


class Saved(NamedTuple):
    """Saved states of the kept run, and memory for those of the next run.

    State k of the kept run is in slot k + SAVES * which[k]. The other fields are those of `RunState`, with one row per
    slot. v: op, d: device.
    """

    which: Ints  # [SAVES] 0 or 1
    at_s: Floats  # [slot] the second of the state; NEVER if nothing is saved
    left: Ints  # [slot] how many ops had not ended
    inputs: NDArray[np.int32]  # [slot, v]
    ready_s: Floats  # [slot, v]
    running: Ints  # [slot, d]
    next_s: Floats
    later_s: Floats  # [slot, d * ops]
    later: Ints
    head: Ints  # [slot, d]
    tail: Ints
    bits: Words  # [slot, d, word]
    full: Words
    first: Ints  # [slot, d]
    left_s: Floats  # [slot, d]
    end_s: Floats  # [v] when v ended in the kept run


@jit
def room_for(tables: Tables) -> Saved:
    """Allocate memory for saved states, with nothing saved yet."""
    n, devices = tables.cost_s.shape
    slots, words = 2 * SAVES, (n + 63) // 64
    return Saved(
        which=np.zeros(SAVES, np.int32),
        at_s=np.full(slots, NEVER),
        left=np.empty(slots, np.int32),
        inputs=np.empty((slots, n), np.int32),
        ready_s=np.empty((slots, n)),
        running=np.empty((slots, devices), np.int32),
        next_s=np.empty((slots, devices)),
        later_s=np.empty((slots, devices * n)),
        later=np.empty((slots, devices * n), np.int32),
        head=np.empty((slots, devices), np.int32),
        tail=np.empty((slots, devices), np.int32),
        bits=np.empty((slots, devices, words), np.int64),
        full=np.empty((slots, devices, (words + 63) // 64), np.int64),
        first=np.empty((slots, devices), np.int32),
        left_s=np.empty((slots, devices)),
        end_s=np.empty(n),
    )


@inner
def _save(w: RunState, s: Saved, slot: int, left: int, now_s: float) -> None:
    n = len(w.inputs)
    s.at_s[slot], s.left[slot] = now_s, left
    for v in range(n):
        s.inputs[slot, v] = w.inputs[v]
    for v in range(n):
        s.ready_s[slot, v] = w.ready_s[v]
    for d in range(len(w.running)):
        s.running[slot, d], s.next_s[slot, d], s.left_s[slot, d] = w.running[d], w.next_s[d], w.left_s[d]
        s.head[slot, d], s.tail[slot, d], s.first[slot, d] = w.head[d], w.tail[d], w.first[d]
        for i in range(d * n + w.head[d], d * n + w.tail[d]):
            s.later_s[slot, i], s.later[slot, i] = w.later_s[i], w.later[i]
        for i in range(w.bits.shape[1]):
            s.bits[slot, d, i] = w.bits[d, i]
        for i in range(w.full.shape[1]):
            s.full[slot, d, i] = w.full[d, i]


@inner
def _load(w: RunState, s: Saved, slot: int) -> None:
    n = len(w.inputs)
    for v in range(n):
        w.inputs[v] = s.inputs[slot, v]
    for v in range(n):
        w.ready_s[v] = s.ready_s[slot, v]
    for d in range(len(w.running)):
        w.running[d], w.next_s[d], w.left_s[d] = s.running[slot, d], s.next_s[slot, d], s.left_s[slot, d]
        w.head[d], w.tail[d], w.first[d] = s.head[slot, d], s.tail[slot, d], s.first[slot, d]
        for i in range(d * n + w.head[d], d * n + w.tail[d]):
            w.later_s[i], w.later[i] = s.later_s[slot, i], s.later[slot, i]
        for i in range(w.bits.shape[1]):
            w.bits[d, i] = s.bits[slot, d, i]
        for i in range(w.full.shape[1]):
            w.full[d, i] = s.full[slot, d, i]


@inner
def first_touched(t: Tables, end_s: Floats, v: int) -> float:
    """The second from which the kept run can depend on the device of op v: when the first producer of v ends.

    Below 0 for an op without inputs. end_s: [ops] of the kept run.
    """
    at_s = np.inf if t.inputs[v] > 0 else -1.0
    for i in range(t.first_input[v], t.first_input[v + 1]):
        at_s = min(at_s, end_s[t.src[t.by_dst[i]]])
    return at_s


@inner
def rerun(
    t: Tables, w: RunState, s: Saved, moved: Ints, before: Ints, count: int, touched_s: float, limit_s: float
) -> tuple[float, int]:
    """Run under the mapping in `w.device`. Return its makespan, infinity if above limit_s, and the state it began at.

    moved: its first `count` entries are the ops that differ from the kept run. before: their devices in the kept run.
    touched_s: the smallest `first_touched` of the moved ops. The state is NOWHERE if the run began at second 0. Call
    `keep` to keep this run, only if its makespan is finite: else not all of its states were saved.
    """
    if t.contention != NO_CONTENTION or t.ends_work:
        restart(t, w)
        return heavy(t, w, True, limit_s), NOWHERE
    ops = len(t.inputs)
    begun, left, now_s = NOWHERE, ops, 0.0
    for k in range(SAVES):
        if s.at_s[k + SAVES * s.which[k]] < touched_s:
            begun = k
    if begun == NOWHERE:
        restart(t, w)
    else:
        slot = begun + SAVES * s.which[begun]
        _load(w, s, slot)
        left, now_s = s.left[slot], s.at_s[slot]
        for i in range(count):
            v = moved[i]
            w.left_s[before[i]] -= t.cost_s[v, before[i]]
            w.left_s[w.device[v]] += t.cost_s[v, w.device[v]]
        w.least_s[0] = 0.0
        for d in range(len(w.running)):
            if w.running[d] >= 0:
                w.least_s[0] = max(w.least_s[0], w.next_s[d] + max(w.left_s[d], t.tail_s[w.running[d]]))
    for k in range(begun + 1, SAVES + 1):
        until = ops - (k + 1) * ops // (SAVES + 1)
        if left > until:
            left, now_s = light(t, w, left, until, True, limit_s)
        if now_s == np.inf:
            break
        if k < SAVES:
            slot = k + SAVES * (1 - s.which[k])
            s.at_s[slot] = NEVER
            if left > 0:
                _save(w, s, slot, left, now_s)
    return now_s, begun


@inner
def keep(w: RunState, s: Saved, begun: int) -> None:
    """Make the run that has just ended the kept run. begun: the state it began at."""
    begun_s = -1.0 if begun == NOWHERE else s.at_s[begun + SAVES * s.which[begun]]
    for v in range(len(w.end_s)):
        if begun == NOWHERE or s.end_s[v] > begun_s:
            s.end_s[v] = w.end_s[v]
    for k in range(begun + 1, SAVES):
        s.which[k] = 1 - s.which[k]
