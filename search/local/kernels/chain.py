"""The state of both kinds of compiled chains: a placement, the memory it holds, and the good placements found.

A chain may pass through placements that do not fit into memory, because where memory is tight hardly any single move
leads from one placement that fits to another. Their value carries a penalty for the memory that is missing. The penalty
rises as long as the chain's placement does not fit and falls while it does, as in the tabu search of Cordeau, Laporte
and Mercier 2001 for vehicle routing. It begins so high that the chain stays where all fits: a short chain that left
would not come back. Only placements that fit are handed over.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from search.local.kernels.draws import Move, no_move
from search.local.kernels.move_shares import KINDS
from search.local.kernels.rng_state import RngState, chance
from search.local.kernels.space import Floats, Ints, Space
from surrogate.jit import inner, jit

LEAST_PENALTY, MOST_PENALTY = 0.01, 1e6  # of `Chain.penalty`
LEAST_LACK = 1e-9  # large enough for 1 + LEAST_PENALTY * LEAST_LACK to differ from 1
RISE = 1.2  # the factor by which a penalty rises or falls at a time
FOUND = 8  # placements that a stretch may hand over: its best, and the last that were good


class Chain(NamedTuple):
    """A placement that is changed step by step. u: unit, d: device, v: op."""

    row: Ints  # [u]
    value_s: Floats  # [1] the value to minimise
    rng_state: RngState
    held_bytes: Floats  # [d]
    after_bytes: Floats  # [d] with the current move
    penalty: Floats  # [1] a placement that lacks the share x of all memory has its value times 1 + penalty * x
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
        np.full(1, min(float(units), MOST_PENALTY)),
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
def worse_after(s: Space, c: Chain, count: int) -> float:
    """Return the factor of the value after the move of `count` units: 1 if all fits into memory, more by the penalty
    if not. Fills `after_bytes`.
    """
    if s.is_roomy:
        return 1.0
    for d in range(len(c.held_bytes)):
        c.after_bytes[d] = c.held_bytes[d]
    for i in range(count):
        u = c.move.unit[i]
        c.after_bytes[c.row[u]] -= s.unit_bytes[u]
        c.after_bytes[c.move.device[i]] += s.unit_bytes[u]
    return 1.0 + c.penalty[0] * _lack(s, c.after_bytes)  # type: ignore[no-any-return]


@inner
def adapt_penalty(s: Space, c: Chain) -> float:
    """Let the penalty rise if the chain's placement does not fit, else fall. Return the factor of its value."""
    if s.is_roomy:
        return 1.0
    lack = _lack(s, c.held_bytes)
    c.penalty[0] = min(max(c.penalty[0] * (RISE if lack > 0.0 else 1 / RISE), LEAST_PENALTY), MOST_PENALTY)
    return 1.0 + c.penalty[0] * lack  # type: ignore[no-any-return]


@inner
def _lack(s: Space, held_bytes: Floats) -> float:
    """Return the bytes beyond the devices' capacities as a share of all bytes: 0 if all fits, else at least LEAST_LACK.

    held_bytes: [d].
    """
    over, total = 0.0, 0.0
    for d in range(len(held_bytes)):
        over += max(0.0, held_bytes[d] - s.capacity_bytes[d])
        total += held_bytes[d]
    return max(over / total, LEAST_LACK) if over > 0.0 else 0.0


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
