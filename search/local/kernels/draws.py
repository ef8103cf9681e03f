"""Compiled moves: small random changes of a placement that keep neighbouring units together.

flip     aaaabbbb -> aababbbb   one unit
run      aaaabbbb -> abbabbbb   units that follow each other
edge     aaaabbbb -> aaaaaabb   the end of a run
swap     aaaabbbb -> aabaabbb   two units
follow   one unit, to the device of a unit with which it exchanges tensors
cluster  units that exchange much, to one device
graft    a stretch or a cluster, to the devices that it has in another row
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from search.local.kernels.move_shares import CLUSTER, EDGE, FOLLOW, GRAFT, RUN, SWAP, MoveShares
from search.local.kernels.rng_state import RngState, below, chance
from search.local.kernels.space import Floats, Ints, Space
from surrogate.jit import inner, jit

Able = NDArray[np.bool_]
FOCUSED = 0.5  # the share of single units that are drawn from those in focus
TRIES = 8  # pairs that are drawn to find one on two devices
NO_SUCH = -1  # a placement has nothing for this kind of move; different from a move of 0 units


class Move(NamedTuple):
    """A move: unit unit[i] goes to device device[i]. The first `count` entries, as returned by `draw`, are valid."""

    unit: Ints  # [u]
    device: Ints
    focus: Ints  # [u] the first focused[0] are the units in focus, from which single units are drawn more often
    focused: Ints  # [1]


@inner
def draw(
    space: Space, move_shares: MoveShares, row: Ints, scale: float, rng_state: RngState, move: Move
) -> tuple[int, int]:
    """Fill `move` with a move from `row`. Return its kind and how many units it moves, 0 if it changes nothing.

    scale: 0 < scale <= 1, the largest share of the units that a move may change. Units that the new device cannot run
    are left out. If there is no edge, a run is drawn instead; if there is nothing to follow or no cluster, a flip.
    """
    kind = _drawn_kind(move_shares.share, rng_state)
    line = space.lines[below(rng_state, len(space.lines))]
    count = NO_SUCH
    if kind == EDGE:
        count = _edge(space, line, row, scale, rng_state, move)
    elif kind == FOLLOW:
        count = _follow(space, row, rng_state, move)
    elif kind == CLUSTER:
        count = _cluster(space, row, scale, rng_state, move)
    elif kind == SWAP:
        count = _swap(space, row, rng_state, move)
    elif kind == GRAFT:
        count = _graft(space, move_shares, line, row, rng_state, move)
    if count == NO_SUCH:
        if kind in (RUN, EDGE):
            count = _run(space, line, row, scale, rng_state, move)
        else:
            count = _flip(space, row, rng_state, move)
    return kind, count


@inner
def _flip(space: Space, row: Ints, rng_state: RngState, move: Move) -> int:
    """Draw a move of one unit to another device."""
    unit = _drawn_unit(space, move, rng_state)
    return _add(space.can, row, unit, _drawn_device(space.can, row, unit, rng_state), move, 0)


@inner
def _run(space: Space, line: Ints, row: Ints, scale: float, rng_state: RngState, move: Move) -> int:
    """Draw a move of units that follow each other in `line` to one device other than that of the middle unit."""
    first, end = _drawn_stretch(scale, len(row), rng_state)
    device = _drawn_device(space.can, row, line[(first + end) // 2], rng_state)
    return _add_all(space.can, row, line[first:end], device, move)


@inner
def _edge(space: Space, line: Ints, row: Ints, scale: float, rng_state: RngState, move: Move) -> int:
    """Draw a move by which one of two runs that meet in `line` takes units of the other; NO_SUCH if all units are on
    one device.
    """
    last = _drawn_border(line, row, rng_state)
    if last == NO_SUCH:
        return NO_SUCH
    first = last + 1
    length = _drawn_length(scale, len(row), rng_state)
    if chance(rng_state) < 0.5:
        return _add_all(space.can, row, line[first : first + length], row[line[last]], move)
    return _add_all(space.can, row, line[max(0, first - length) : first], row[line[first]], move)


@inner
def _follow(space: Space, row: Ints, rng_state: RngState, move: Move) -> int:
    """Draw a move of a unit to the device of a unit with which it exchanges tensors; NO_SUCH if TRIES draws find no
    such pair on two devices.
    """
    count = NO_SUCH
    for _ in range(TRIES if len(space.pairs) else 0):
        pair, end = below(rng_state, len(space.pairs)), below(rng_state, 2)
        unit, neighbour = space.pairs[pair, end], space.pairs[pair, 1 - end]
        if count == NO_SUCH and row[unit] != row[neighbour]:
            count = _add(space.can, row, unit, row[neighbour], move, 0)
    return count


@inner
def _cluster(space: Space, row: Ints, scale: float, rng_state: RngState, move: Move) -> int:
    """Draw a move of a cluster to one device other than that of one of its units; NO_SUCH if there are no clusters."""
    cluster = _drawn_cluster(space.first_member, max(2.0, scale * len(row)), rng_state)
    if cluster == NO_SUCH:
        return NO_SUCH
    units = space.member[space.first_member[cluster] : space.first_member[cluster + 1]]
    device = _drawn_device(space.can, row, units[below(rng_state, len(units))], rng_state)
    return _add_all(space.can, row, units, device, move)


@inner
def _swap(space: Space, row: Ints, rng_state: RngState, move: Move) -> int:
    """Draw a move by which two units exchange their devices."""
    one, other = _drawn_unit(space, move, rng_state), _drawn_unit(space, move, rng_state)
    if not space.can[one, row[other]] or not space.can[other, row[one]]:
        return 0
    count = _add(space.can, row, one, row[other], move, 0)
    return _add(space.can, row, other, row[one], move, count)


@inner
def _graft(space: Space, move_shares: MoveShares, line: Ints, row: Ints, rng_state: RngState, move: Move) -> int:
    """Draw a move of a cluster, or of units that follow each other in `line`, to the devices that they have in one of
    the `others`.
    """
    others, scale = move_shares.others, move_shares.graft
    other = others[below(rng_state, len(others))]
    most = max(2.0, scale * len(row))
    cluster = _drawn_cluster(space.first_member, most, rng_state) if chance(rng_state) < 0.5 else NO_SUCH
    if cluster == NO_SUCH:
        first, end = _drawn_stretch(scale, len(row), rng_state)
        units = line[first:end]
    else:
        units = space.member[space.first_member[cluster] : space.first_member[cluster + 1]]
    count = 0
    for i in range(len(units)):
        count = _add(space.can, row, units[i], other[units[i]], move, count)
    return count


@inner
def _add(can: Able, row: Ints, unit: int, device: int, move: Move, count: int) -> int:
    """Add a unit to the move if that changes something and is possible; return how many units the move has then."""
    if row[unit] == device or not can[unit, device]:
        return count
    move.unit[count], move.device[count] = unit, device
    return count + 1


@inner
def _add_all(can: Able, row: Ints, units: Ints, device: int, move: Move) -> int:
    """Make a move of `units` to one device; return how many units the move has."""
    count = 0
    for i in range(len(units)):
        count = _add(can, row, units[i], device, move, count)
    return count


@inner
def _drawn_kind(share: Floats, rng_state: RngState) -> int:
    """Draw a kind of move. share: [kinds] the probability of each."""
    kind, rest = 0, chance(rng_state)
    while kind < len(share) - 1 and rest >= share[kind]:
        rest -= share[kind]
        kind += 1
    return kind


@inner
def _drawn_border(line: Ints, row: Ints, rng_state: RngState) -> int:
    """Draw a place in `line` where a run of one device ends: the first after a random place. NO_SUCH if all units are
    on one device.
    """
    last = len(row) - 1
    begin = below(rng_state, max(1, last))
    for i in range(last):
        at = begin + i
        at = at - last if at >= last else at
        if row[line[at]] != row[line[at + 1]]:
            return at
    return NO_SUCH


@inner
def _drawn_cluster(first_member: Ints, most: float, rng_state: RngState) -> int:
    """Draw one of the clusters of at most `most` units, else the first cluster; NO_SUCH if there are no clusters."""
    low, high = 0, len(first_member) - 1
    if high == 0:
        return NO_SUCH
    while low < high:
        mid = (low + high) // 2
        if first_member[mid + 1] - first_member[mid] <= most:
            low = mid + 1
        else:
            high = mid
    return below(rng_state, max(1, low))


@inner
def _drawn_unit(space: Space, move: Move, rng_state: RngState) -> int:
    """Draw a unit: one in focus, one with a probability by its work, or any that may move; 0 if none may."""
    free, focused = space.free, move.focused[0]
    if len(free) == 0:
        return 0
    if focused > 0 and chance(rng_state) < FOCUSED:
        return move.focus[below(rng_state, focused)]  # type: ignore[no-any-return]
    if chance(rng_state) < 0.5:
        wanted = chance(rng_state)
        low, high = 0, len(free) - 1
        while low < high:
            mid = (low + high) // 2
            if space.by_work[mid] < wanted:
                low = mid + 1
            else:
                high = mid
        return free[low]  # type: ignore[no-any-return]
    return free[below(rng_state, len(free))]  # type: ignore[no-any-return]


@inner
def _drawn_device(can: Able, row: Ints, unit: int, rng_state: RngState) -> int:
    """Draw a device that can run the unit, other than its device in `row` if there is one."""
    now = row[unit]
    able = 0
    for d in range(can.shape[1]):
        able += can[unit, d] and d != now
    if able == 0:
        return now  # type: ignore[no-any-return]
    nth = below(rng_state, able)
    for d in range(can.shape[1]):
        if can[unit, d] and d != now:
            if nth == 0:
                return d
            nth -= 1
    return now  # type: ignore[no-any-return]


@inner
def _drawn_stretch(scale: float, units: int, rng_state: RngState) -> tuple[int, int]:
    """Draw (first, end) of a stretch of units that follow each other. units: how many there are in all."""
    length = _drawn_length(scale, units, rng_state)
    first = below(rng_state, max(1, units - length + 1))
    return first, min(first + length, units)


@inner
def _drawn_length(scale: float, units: int, rng_state: RngState) -> int:
    """Draw the length of a stretch, uniform in its logarithm."""
    return max(1, int(2.0 ** (chance(rng_state) * math.log2(max(2.0, scale * units)))))


@jit
def no_move(units: int) -> Move:
    """Allocate memory for moves, with no unit in focus."""
    return Move(np.empty(units, np.int32), np.empty(units, np.int32), np.empty(units, np.int32), np.zeros(1, np.int32))


@inner
def focus_on(space: Space, move: Move, unit: int) -> None:
    """Add `unit` to the units in focus if it may move."""
    able = 0
    for d in range(space.can.shape[1]):
        able += space.can[unit, d]
    if able > 1 and move.focused[0] < len(move.focus):
        move.focus[move.focused[0]] = unit
        move.focused[0] += 1


@jit
def change(space: Space, move_shares: MoveShares, row: Ints, scale: float, rng_state: RngState) -> None:
    """Change `row` by one move."""
    move = no_move(len(row))
    _, count = draw(space, move_shares, row, scale, rng_state, move)
    for i in range(count):
        row[move.unit[i]] = move.device[i]
