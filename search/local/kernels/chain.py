"""What both kinds of compiled chains keep: where units are, what memory holds, and what was found on the way."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from search.local.kernels.draws import Move, no_move
from search.local.kernels.move_shares import KINDS
from search.local.kernels.rng_state import RngState, chance
from search.local.kernels.space import Floats, Ints, Space
from surrogate.jit import inner, jit

FOUND = 8  # placements that a stretch may hand over: its best, and the last that were good


class Chain(NamedTuple):
    """A placement that is changed step by step. u: unit, d: device, v: op."""

    row: Ints  # [u]
    value_s: Floats  # [1] what is to become small
    rng_state: RngState
    held_bytes: Floats  # [d]
    after_bytes: Floats  # [d] with the move that is looked at
    move: Move
    moved: Ints  # [v] ops that move
    before: Ints  # [v] where they were
    gained: Ints  # [kinds] moves of the last stretch after which the value was lower
    found: Ints  # [FOUND, u]
    found_s: Floats  # [FOUND] their values; infinity where there is none


class Stretch(NamedTuple):
    """Steps of annealing under the same conditions."""

    steps: int
    heat_s: float  # the temperature, in seconds: a move that loses as much is accepted with probability 1/e
    scale: float  # share of the units that a move may at most concern
    good_s: float  # placements with a value below this are kept as found


@jit
def new_chain(space: Space, row: Ints, rng_state: RngState) -> Chain:
    """A chain at `row`, its value not known until its first stretch."""
    units, devices, ops = len(row), space.can.shape[1], len(space.op)
    return Chain(
        row.copy(),
        np.full(1, np.inf),
        rng_state.copy(),
        np.empty(devices),
        np.empty(devices),
        no_move(units),
        np.empty(ops, np.int32),
        np.empty(ops, np.int32),
        np.zeros(len(KINDS), np.int32),
        np.empty((FOUND, units), np.int32),
        np.full(FOUND, np.inf),
    )


@inner
def begin_stretch(s: Space, c: Chain) -> None:
    """Nothing gained or found yet; memory is added up, because sums of many changes drift."""
    c.gained[:], c.found_s[:], c.held_bytes[:] = 0, np.inf, 0.0
    for u in range(len(c.row)):
        c.held_bytes[c.row[u]] += s.unit_bytes[u]


@inner
def fits(s: Space, c: Chain, count: int) -> bool:
    """Whether memory suffices on every device after the move of so many units; fills `after_bytes`."""
    if s.is_roomy:
        return True
    for d in range(len(c.held_bytes)):
        c.after_bytes[d] = c.held_bytes[d]
    for i in range(count):
        u = c.move.unit[i]
        c.after_bytes[c.row[u]] -= s.unit_bytes[u]
        c.after_bytes[c.move.device[i]] += s.unit_bytes[u]
    over = 0
    for d in range(len(c.after_bytes)):
        over += c.after_bytes[d] > s.capacity_bytes[d]
    return over == 0


@inner
def limit_of(c: Chain, x: Stretch) -> float:
    """The largest value that is accepted next: Metropolis et al. 1953, with the chance drawn ahead."""
    return c.value_s[0] - x.heat_s * math.log(1.0 - chance(c.rng_state))  # type: ignore[no-any-return]


@inner
def accept(s: Space, c: Chain, count: int, kind: int, value_s: float) -> None:
    """The move is made."""
    for i in range(count):
        c.row[c.move.unit[i]] = c.move.device[i]
    if not s.is_roomy:
        for d in range(len(c.held_bytes)):
            c.held_bytes[d] = c.after_bytes[d]
    if value_s < c.value_s[0]:
        c.gained[kind] += 1
    c.value_s[0] = value_s


@inner
def hand_over(c: Chain, step: int, value_s: float) -> None:
    """The chain's placement is worth knowing: the best of the stretch comes first, others replace the oldest."""
    slot = 0 if value_s < c.found_s[0] else 1 + step % (FOUND - 1)
    if slot == 0 and c.found_s[0] < np.inf:
        other = 1 + step % (FOUND - 1)
        c.found_s[other] = c.found_s[0]
        for u in range(len(c.row)):
            c.found[other, u] = c.found[0, u]
    c.found_s[slot] = value_s
    for u in range(len(c.row)):
        c.found[slot, u] = c.row[u]
