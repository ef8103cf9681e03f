"""Compiled annealing of the makespan: each placement is simulated from the first difference to the accepted limit."""

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
from search.local.kernels.space import Floats, Space
from surrogate.jit import inner, jit, kernel
from surrogate.simulate.kernels.arrays import Tables
from surrogate.simulate.kernels.critical_path import critical_path
from surrogate.simulate.kernels.rerun import Saved, first_touched, keep, rerun, room_for
from surrogate.simulate.kernels.run_state import RunState, workspace

OWN = -1
SLACK = 1e-9  # relative, because sums that are compared with a limit have another order than the simulator's


class Simulated(NamedTuple):
    """The simulated run of a chain's placement, and memory for the next run. d: device."""

    run: RunState
    saved: Saved
    work_s: Floats  # [d] seconds of the ops on the device


@jit
def cool_makespan(tables: Tables, space: Space, move_shares: MoveShares, chain: Chain, stretch: Stretch) -> None:
    """Continue a chain for a stretch.

    Single units are drawn more often from the critical path of the placement with which the stretch begins.
    """
    state = Simulated(workspace(tables), room_for(tables), np.zeros(tables.cost_s.shape[1]))
    begin_stretch(space, chain)
    for u in range(len(chain.row)):
        d = chain.row[u]
        state.work_s[d] += space.unit_cost_s[u, d]
        for at in range(space.first_op[u], space.first_op[u + 1]):
            state.run.device[space.op[at]] = d
    _cool(tables, space, move_shares, chain, state, stretch, OWN, 0)
    chain.move.focused[0] = 0
    if chain.value_s[0] < np.inf:
        path = np.empty(len(space.op), np.int32)
        for i in range(critical_path(tables, state.run.device, state.saved.end_s, path)):
            focus_on(space, chain.move, space.unit_of[path[i]])
    _cool(tables, space, move_shares, chain, state, stretch, 0, stretch.steps)


@kernel
def _cool(
    t: Tables, s: Space, move_shares: MoveShares, c: Chain, m: Simulated, x: Stretch, begin: int, end: int
) -> None:
    """Take the steps from `begin` to `end`. Step OWN simulates the chain's own placement and keeps its run.

    This is a step and not a separate function, because `rerun` is compiled into each place that calls it.
    """
    for step in range(begin, end):
        kind, count, moved, touched_s, limit_s, worse = 0, 0, 0, -1.0, np.inf, 1.0
        if step != OWN:
            kind, count = draw(s, move_shares, c.row, x.scale, c.rng_state, c.move)
            limit_s = limit_of(c, x)
            if count == 0:
                continue
            worse = worse_after(s, c, count)
            limit_s /= worse
            if not _shift_work(s, c, m.work_s, count, 1.0, limit_s):
                _shift_work(s, c, m.work_s, count, -1.0, limit_s)
                continue
            touched_s = np.inf
        for i in range(count):
            u = c.move.unit[i]
            for at in range(s.first_op[u], s.first_op[u + 1]):
                v = s.op[at]
                c.moved[moved], c.before[moved] = v, m.run.device[v]
                m.run.device[v] = c.move.device[i]
                touched_s = min(touched_s, first_touched(t, m.saved.end_s, v))
                moved += 1
        value_s, begun = rerun(t, m.run, m.saved, c.moved, c.before, moved, touched_s, limit_s * (1 + SLACK))
        if value_s <= limit_s:
            if value_s < np.inf:  # the run of a placement that lacks a link is accepted, but cannot be kept
                keep(m.run, m.saved, begun)
            if step == OWN:
                c.value_s[0] = value_s * adapt_penalty(s, c)
                continue
            accept(s, c, count, kind, value_s * worse)
            if worse == 1.0 and value_s < x.good_s:
                hand_over(c, step, value_s)
        else:
            for i in range(moved):
                m.run.device[c.moved[i]] = c.before[i]
            _shift_work(s, c, m.work_s, count, -1.0, limit_s)


@inner
def _shift_work(s: Space, c: Chain, work_s: Floats, count: int, sign: float, limit_s: float) -> bool:
    """Add the work that the move shifts between devices. Return whether each device's work is within the limit.

    sign: 1 to make the shift, -1 to undo it.
    """
    for i in range(count):
        u, d = c.move.unit[i], c.move.device[i]
        work_s[c.row[u]] -= sign * s.unit_cost_s[u, c.row[u]]
        work_s[d] += sign * s.unit_cost_s[u, d]
    most_s = 0.0
    for d in range(len(work_s)):
        most_s = max(most_s, work_s[d])
    return most_s <= limit_s * (1 + SLACK)
