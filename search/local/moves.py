"""Moves: how often each kind is drawn, learned from the moves that gained."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from search.local.kernels.move_shares import CLUSTER, FOLLOW, GRAFT, KINDS, SWAP, MoveShares
from search.local.kernels.space import space_of
from search.problem.problem import Problem

Row = NDArray[np.int32]
"""[units] the device of each unit."""
Rng = np.random.Generator

FLOOR, MOST = 0.05, 0.4  # the least and the largest share of a kind of move
# The fixed share of grafts, which gain only what another row has gained before, and the largest share of the units that
# a graft takes. For max-load a move takes time by the units that it moves, so large grafts cost more than they gain.
GRAFTS = {"makespan": 0.3, "max-load": 0.1}
LARGEST_GRAFT = {"makespan": 1.0, "max-load": 0.1}
LEARNING = 0.02  # how fast shares follow success


class Moves:
    """A source of random moves, which draws kinds that have gained more often.

    A move changes a row in place; units that the new device cannot run stay where they are.
    """

    def __init__(self, problem: Problem) -> None:
        self.space = space_of(problem)
        self.units, self.devices = self.space.can.shape
        able = np.ones(len(KINDS), bool)
        able[FOLLOW] = len(self.space.pairs) > 0
        able[CLUSTER] = len(self.space.member) > 0
        able[[SWAP, GRAFT]] = len(self.space.free) > 1
        self.able: NDArray[np.bool_] = able
        self.grafts, self.largest_graft = GRAFTS[problem.objective], LARGEST_GRAFT[problem.objective]
        self.forget()

    @cached_property
    def clusters(self) -> list[NDArray[np.int32]]:
        """Return sets of units that exchange much, small ones first."""
        return np.split(self.space.member, self.space.first_member[1:-1]) if len(self.space.member) else []

    def forget(self) -> None:
        """Reset the shares."""
        self.share = self.able / self.able.sum()

    def move_shares(self, others: Sequence[Row]) -> MoveShares:
        """Return the current shares for compiled chains. others: rows to take parts from."""
        return MoveShares(self.share.copy(), np.array(others, np.int32).reshape(-1, self.units), self.largest_graft)

    def draw(self, row: Row, others: Sequence[Row], scale: float, rng: Rng) -> None:
        """Change `row` by one move. others: rows to take parts from. scale: 0 < scale <= 1, the largest share of the
        units that a move may change.
        """
        from search.local.kernels.draws import change
        from search.local.kernels.rng_state import rng_states  # numba is slow to import

        shares = self.move_shares(others)
        if all(np.array_equal(row, other) for other in shares.others):  # a graft would change nothing
            shares = shares._replace(share=_without_grafts(shares.share))
        change(self.space, shares, row, scale, rng_states(rng, 1)[0])

    def learn(self, gained: NDArray[np.integer]) -> None:
        """Shift the shares towards the kinds that gained. gained: [kinds] how often each kind gained."""
        for kind in np.flatnonzero(gained):
            kept = (1 - LEARNING) ** int(gained[kind])
            self.share *= kept
            self.share[kind] += 1 - kept
        self.share = np.where(self.able, np.clip(self.share, FLOOR, MOST), 0.0)
        self.share[GRAFT] = self.grafts * self.able[GRAFT]
        self.share /= self.share.sum()


def _without_grafts(share: NDArray[np.float64]) -> NDArray[np.float64]:
    """The shares of the other kinds, enlarged to add up to 1; unchanged if there are none."""
    others = np.where(np.arange(len(share)) == GRAFT, 0.0, share)
    return others / others.sum() if others.any() else share
