"""The kinds of moves and their probabilities, in a module that does not import numba, which is slow to import."""

from __future__ import annotations

from typing import NamedTuple

from search.local.kernels.space import Floats, Ints

KINDS = ("flip", "run", "edge", "follow", "cluster", "swap", "graft")
FLIP, RUN, EDGE, FOLLOW, CLUSTER, SWAP, GRAFT = range(len(KINDS))


class MoveShares(NamedTuple):
    """The probability of each kind of move, and the rows for grafts."""

    share: Floats  # [kinds] probabilities, which add up to 1
    others: Ints  # [k, u] rows to take parts from
    graft: float  # the largest share of the units that a graft may take
