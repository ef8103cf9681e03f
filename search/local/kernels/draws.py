"""Compiled moves: small random changes of a placement that keep neighbouring units together."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from search.local.kernels.move_shares import CLUSTER, EDGE, FLIP, FOLLOW, GRAFT, RUN, SWAP, MoveShares
from search.local.kernels.rng_state import RngState, below, chance
from search.local.kernels.space import Floats, Ints, Space
from surrogate.jit import inner, jit

Able = NDArray[np.bool_]
FOCUSED = 0.5  # of single units so many are drawn from those in focus
TRIES = 8  # pairs that are looked at until one is cut


class Move(NamedTuple):
    """Unit unit[i] goes to device device[i]; only so many are valid as `draw` says."""

    unit: Ints  # [u]
    device: Ints
    focus: Ints  # [u] the first focused[0] are units that single units are drawn from more often
    focused: Ints  # [1]


@inner
def draw(s: Space, t: MoveShares, row: Ints, scale: float, rng_state: RngState, move: Move) -> tuple[int, int]:
    """Fill `move` with a move from `row`; returns its kind and how many units it concerns, 0 where it changes nothing.

    scale: 0 < scale <= 1, the share of the units that a move may at most concern. Units that the new device cannot run
    are left out.
    """
    kind, rest = 0, chance(rng_state)
    while kind < len(t.share) - 1 and rest >= t.share[kind]:
        rest -= t.share[kind]
        kind += 1
    units, count = len(row), 0
    drawn, line = kind, below(rng_state, len(s.lines))
    if drawn == EDGE:
        at = _border(s.lines[line], row, rng_state)
        if at >= 0:
            length = _length(scale, units, rng_state)
            if chance(rng_state) < 0.5:
                for i in range(at + 1, min(at + 1 + length, units)):
                    count = _add(s.can, row, s.lines[line, i], row[s.lines[line, at]], move.unit, move.device, count)
            else:
                for i in range(max(0, at + 1 - length), at + 1):
                    count = _add(
                        s.can, row, s.lines[line, i], row[s.lines[line, at + 1]], move.unit, move.device, count
                    )
        else:
            drawn = RUN
    elif drawn == FOLLOW:
        drawn = FLIP
        for _ in range(TRIES if len(s.pairs) else 0):
            p, end = below(rng_state, len(s.pairs)), below(rng_state, 2)
            u, w = s.pairs[p, end], s.pairs[p, 1 - end]
            if row[u] != row[w] and drawn == FLIP:
                count = _add(s.can, row, u, row[w], move.unit, move.device, count)
                drawn = FOLLOW
    elif drawn == CLUSTER:
        drawn = FLIP
        c = _cluster(s.first_member, max(2.0, scale * units), rng_state)
        if c >= 0:
            drawn = CLUSTER
            first, size = s.first_member[c], s.first_member[c + 1] - s.first_member[c]
            u = s.member[first + below(rng_state, size)]
            device = _device(s.can, u, row[u], rng_state)
            for i in range(first, first + size):
                count = _add(s.can, row, s.member[i], device, move.unit, move.device, count)
    elif drawn == SWAP:
        u, w = (
            _unit(s.free, s.by_work, move.focus, move.focused[0], rng_state),
            _unit(s.free, s.by_work, move.focus, move.focused[0], rng_state),
        )
        if row[u] != row[w] and s.can[u, row[w]] and s.can[w, row[u]]:
            count = _add(s.can, row, u, row[w], move.unit, move.device, count)
            count = _add(s.can, row, w, row[u], move.unit, move.device, count)
    elif drawn == GRAFT:
        other = below(rng_state, len(t.others))
        c = _cluster(s.first_member, float(units), rng_state) if chance(rng_state) < 0.5 else -1
        if c >= 0:
            for i in range(s.first_member[c], s.first_member[c + 1]):
                count = _add(s.can, row, s.member[i], t.others[other, s.member[i]], move.unit, move.device, count)
        else:
            length = _length(1.0, units, rng_state)
            first = below(rng_state, max(1, units - length + 1))
            for i in range(first, min(first + length, units)):
                count = _add(
                    s.can, row, s.lines[line, i], t.others[other, s.lines[line, i]], move.unit, move.device, count
                )
    if drawn == RUN:
        length = _length(scale, units, rng_state)
        first = below(rng_state, max(1, units - length + 1))
        end = min(first + length, units)
        u = s.lines[line, (first + end) // 2]
        device = _device(s.can, u, row[u], rng_state)
        for i in range(first, end):
            count = _add(s.can, row, s.lines[line, i], device, move.unit, move.device, count)
    elif drawn == FLIP:
        u = _unit(s.free, s.by_work, move.focus, move.focused[0], rng_state)
        count = _add(s.can, row, u, _device(s.can, u, row[u], rng_state), move.unit, move.device, count)
    return kind, count


@inner
def _add(can: Able, row: Ints, u: int, d: int, unit: Ints, device: Ints, count: int) -> int:
    """One more unit to the move, where it changes something; how many there are then."""
    if row[u] == d or not can[u, d]:
        return count
    unit[count], device[count] = u, d
    return count + 1


@inner
def _border(line: Ints, row: Ints, rng_state: RngState) -> int:
    """The place in line where a run of one device ends, the first such after a random one; -1 where all are on one."""
    last = len(row) - 1
    begin = below(rng_state, max(1, last))
    for i in range(last):
        at = begin + i
        at = at - last if at >= last else at
        if row[line[at]] != row[line[at + 1]]:
            return at
    return -1


@inner
def _cluster(first_member: Ints, most: float, rng_state: RngState) -> int:
    """One of the clusters of at most so many units, else the first; -1 where there are none."""
    low, high = 0, len(first_member) - 1
    if high == 0:
        return -1
    while low < high:
        mid = (low + high) // 2
        if first_member[mid + 1] - first_member[mid] <= most:
            low = mid + 1
        else:
            high = mid
    return below(rng_state, max(1, low))


@jit
def no_move(units: int) -> Move:
    """Room for moves; nothing in focus."""
    return Move(np.empty(units, np.int32), np.empty(units, np.int32), np.empty(units, np.int32), np.zeros(1, np.int32))


@inner
def focus_on(s: Space, move: Move, u: int) -> None:
    """Draw single units more often from this one, too, where it may move."""
    able = 0
    for d in range(s.can.shape[1]):
        able += s.can[u, d]
    if able > 1 and move.focused[0] < len(move.focus):
        move.focus[move.focused[0]] = u
        move.focused[0] += 1


@inner
def _unit(free: Ints, by_work: Floats, focus: Ints, focused: int, rng_state: RngState) -> int:
    """One of those in focus, of those with much work, or of all."""
    if len(free) == 0:
        return 0
    if focused > 0 and chance(rng_state) < FOCUSED:
        return focus[below(rng_state, focused)]  # type: ignore[no-any-return]
    if chance(rng_state) < 0.5:
        wanted = chance(rng_state)
        low, high = 0, len(free) - 1
        while low < high:
            mid = (low + high) // 2
            if by_work[mid] < wanted:
                low = mid + 1
            else:
                high = mid
        return free[low]  # type: ignore[no-any-return]
    return free[below(rng_state, len(free))]  # type: ignore[no-any-return]


@inner
def _device(can: Able, u: int, now: int, rng_state: RngState) -> int:
    """A random device that can run u, other than `now` if there is one."""
    able = 0
    for d in range(can.shape[1]):
        able += can[u, d] and d != now
    if able == 0:
        return now
    nth = below(rng_state, able)
    for d in range(can.shape[1]):
        if can[u, d] and d != now:
            if nth == 0:
                return d
            nth -= 1
    return now


@inner
def _length(scale: float, units: int, rng_state: RngState) -> int:
    """Of a run: uniform in its logarithm."""
    return max(1, int(2.0 ** (chance(rng_state) * math.log2(max(2.0, scale * units)))))


@jit
def change(space: Space, move_shares: MoveShares, row: Ints, scale: float, rng_state: RngState) -> int:
    """Change `row` by one move; returns its kind."""
    move = no_move(len(row))
    kind, count = draw(space, move_shares, row, scale, rng_state, move)
    for i in range(count):
        row[move.unit[i]] = move.device[i]
    return kind
