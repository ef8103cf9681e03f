"""The kinds of moves, and how often each is drawn; without numba, which is slow to import."""

from __future__ import annotations

from typing import NamedTuple

from search.local.kernels.space import Floats, Ints

KINDS = ("flip", "run", "edge", "follow", "cluster", "swap", "graft")
FLIP, RUN, EDGE, FOLLOW, CLUSTER, SWAP, GRAFT = range(len(KINDS))


class MoveShares(NamedTuple):
    """The probability of each kind of move."""

    share: Floats  # [kinds] they add up to 1
    others: Ints  # [k, u] rows to take parts from
