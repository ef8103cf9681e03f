"""Compiled annealing of the largest load, which adds up only what a move changes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from search.local.kernels.chain import (
    Chain,
    Stretch,
    accept,
    adapt_penalty,
    begin_stretch,
    hand_over,
    limit_of,
    worse_after,
)
from search.local.kernels.draws import draw, focus_on
from search.local.kernels.move_shares import MoveShares
from search.local.kernels.space import Floats, Ints, Space
from surrogate.jit import inner, jit, kernel
from surrogate.simulate.kernels.max_load_kernel import Ends

ATTENTION = 64  # after so many steps the units of the now busiest device come into focus, and the penalty is adapted
SQUARINGS = 4  # loads are measured by their 2 ** 4 = 16th norm: nearly the largest load, and lower if others are lower


class Loads(NamedTuple):
    """The loads of a chain's placement. v: op, t: tensor, d: device."""

    device: Ints  # [v]
    users: Ints  # [t, d] how many ops on d use the tensor
    reached: Ints  # [t] how many devices other than its maker's use the tensor
    load_s: Floats  # [d]


@jit
def cool_loads(ends: Ends, space: Space, move_shares: MoveShares, chain: Chain, stretch: Stretch) -> None:
    """Continue a chain for a stretch. The chain minimises a norm of all loads, but the value of a placement that it
    hands over is the largest load.
    """
    _cool(ends, space, move_shares, chain, _no_loads(ends), stretch)


@jit
def _no_loads(ends: Ends) -> Loads:
    """Allocate memory for the loads of a chain."""
    ops, devices = ends.cost_s.shape
    tensors = len(ends.maker)
    return Loads(
        np.empty(ops, np.int32), np.empty((tensors, devices), np.int32), np.empty(tensors, np.int32), np.empty(devices)
    )


@kernel
def _cool(e: Ends, s: Space, move_shares: MoveShares, c: Chain, m: Loads, x: Stretch) -> None:
    begin_stretch(s, c)
    for v in range(len(m.device)):
        m.device[v] = c.row[s.unit_of[v]]
    _add_up(e, m)
    for step in range(x.steps):
        if step % ATTENTION == 0:
            _attend(s, c, m)
            c.value_s[0] = _norm_s(m.load_s) * adapt_penalty(s, c)
        kind, count = draw(s, move_shares, c.row, x.scale, c.rng_state, c.move)
        limit_s = limit_of(c, x)
        if count == 0:
            continue
        worse = worse_after(s, c, count)
        for i in range(count):
            u = c.move.unit[i]
            for at in range(s.first_op[u], s.first_op[u + 1]):
                _shift(e, m, s.op[at], c.move.device[i])
        value_s = _norm_s(m.load_s) * worse
        if value_s <= limit_s:
            accept(s, c, count, kind, value_s)
            largest_s = _largest(m.load_s)
            if worse == 1.0 and largest_s < min(x.good_s, c.found_s[0]):
                hand_over(c, step, largest_s)
        else:
            for i in range(count):
                u = c.move.unit[i]
                for at in range(s.first_op[u], s.first_op[u + 1]):
                    _shift(e, m, s.op[at], c.row[u])


@inner
def _attend(s: Space, c: Chain, m: Loads) -> None:
    busiest = 0
    for d in range(1, len(m.load_s)):
        busiest = d if m.load_s[d] > m.load_s[busiest] else busiest
    c.move.focused[0] = 0
    for i in range(len(s.free)):
        if c.row[s.free[i]] == busiest:
            focus_on(s, c.move, s.free[i])


@inner
def _add_up(e: Ends, m: Loads) -> None:
    """Compute all loads from the devices of the ops."""
    m.users[:], m.reached[:], m.load_s[:] = 0, 0, 0.0
    for v in range(len(m.device)):
        m.load_s[m.device[v]] += e.cost_s[v, m.device[v]]
    for k in range(len(e.maker)):
        home = m.device[e.maker[k]]
        for use in range(e.start[k], e.start[k + 1]):
            d = m.device[e.user[use]]
            m.users[k, d] += 1
            if m.users[k, d] == 1 and d != home:
                m.reached[k] += 1
                m.load_s[d] += e.receive_s[k, d]
        if m.reached[k] > 0:
            m.load_s[home] += e.send_s[k, home]


@inner
def _shift(e: Ends, m: Loads, v: int, b: int) -> None:
    """Move op v to device b, and update the loads."""
    a = m.device[v]
    if a == b:
        return
    m.device[v] = b
    m.load_s[a] -= e.cost_s[v, a]
    m.load_s[b] += e.cost_s[v, b]
    for k in range(e.first_made[v], e.first_made[v + 1]):
        before = m.reached[k]
        after = before
        if m.users[k, b] > 0:
            m.load_s[b] -= e.receive_s[k, b]
            after -= 1
        if m.users[k, a] > 0:
            m.load_s[a] += e.receive_s[k, a]
            after += 1
        m.reached[k] = after
        if before > 0:
            m.load_s[a] -= e.send_s[k, a]
        if after > 0:
            m.load_s[b] += e.send_s[k, b]
    for i in range(e.first_used[v], e.first_used[v + 1]):
        k = e.used[i]
        home = m.device[e.maker[k]]
        before = m.reached[k]
        after = before
        m.users[k, a] -= 1
        if m.users[k, a] == 0 and a != home:
            m.load_s[a] -= e.receive_s[k, a]
            after -= 1
        m.users[k, b] += 1
        if m.users[k, b] == 1 and b != home:
            m.load_s[b] += e.receive_s[k, b]
            after += 1
        m.reached[k] = after
        if before > 0 and after == 0:
            m.load_s[home] -= e.send_s[k, home]
        if before == 0 and after > 0:
            m.load_s[home] += e.send_s[k, home]


@inner
def _largest(load_s: Floats) -> float:
    most_s = load_s[0]
    for d in range(1, len(load_s)):
        most_s = max(most_s, load_s[d])
    return most_s  # type: ignore[no-any-return]


@inner
def _norm_s(load_s: Floats) -> float:
    """The norm of all loads, which is nearly the largest. If largest loads are equal, smaller other loads make it
    lower.
    """
    most_s = _largest(load_s)
    if most_s <= 0.0 or most_s == np.inf:
        return most_s
    total = 0.0
    for d in range(len(load_s)):
        power = load_s[d] / most_s
        for _ in range(SQUARINGS):
            power *= power
        total += power
    for _ in range(SQUARINGS):
        total = np.sqrt(total)
    return most_s * total
