"""The state of both kinds of compiled chains: a placement, the memory it holds, and the good placements found."""

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
    value_s: Floats  # [1] the value to minimise
    rng_state: RngState
    held_bytes: Floats  # [d]
    after_bytes: Floats  # [d] with the current move
    move: Move
    moved: Ints  # [v] ops that move
    before: Ints  # [v] their devices before
    gained: Ints  # [kinds] moves of the last stretch that lowered the value
    found: Ints  # [FOUND, u]
    found_s: Floats  # [FOUND] the values of `found`; infinity if empty


class Stretch(NamedTuple):
    """Steps of annealing under the same conditions."""

    steps: int
    heat_s: float  # the temperature: a move that loses this many seconds is accepted with probability 1/e
    scale: float  # the largest share of the units that a move may change
    good_s: float  # placements with a value below this are kept as found


@jit
def new_chain(space: Space, row: Ints, rng_state: RngState) -> Chain:
    """Return a chain at `row`, whose value is unknown until its first stretch."""
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
    """Reset what was gained and found. Add up the memory again, because sums of many changes drift."""
    c.gained[:], c.found_s[:], c.held_bytes[:] = 0, np.inf, 0.0
    for u in range(len(c.row)):
        c.held_bytes[c.row[u]] += s.unit_bytes[u]


@inner
def fits(s: Space, c: Chain, count: int) -> bool:
    """Whether the memory of every device is enough after the move of `count` units. Fills `after_bytes`."""
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
    """Return the largest value that the next move may have: Metropolis et al. 1953, with the chance drawn ahead."""
    return c.value_s[0] - x.heat_s * math.log(1.0 - chance(c.rng_state))  # type: ignore[no-any-return]


@inner
def accept(s: Space, c: Chain, count: int, kind: int, value_s: float) -> None:
    """Make the move."""
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
    """Keep the chain's placement as found. The best of the stretch has slot 0; others replace older ones."""
    slot = 0 if value_s < c.found_s[0] else 1 + step % (FOUND - 1)
    if slot == 0 and c.found_s[0] < np.inf:
        other = 1 + step % (FOUND - 1)
        c.found_s[other] = c.found_s[0]
        for u in range(len(c.row)):
            c.found[other, u] = c.found[0, u]
    c.found_s[slot] = value_s
    for u in range(len(c.row)):
        c.found[slot, u] = c.row[u]
