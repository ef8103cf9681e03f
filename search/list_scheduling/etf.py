"""ETF: of all ready ops and devices, the pair that can start first comes next (Hwang, Chow, Anger, Lee 1989)."""

from __future__ import annotations

import numpy as np

from search.problem.memory_fit import fitted
from search.problem.problem import Placement, Problem


def etf_placement(problem: Problem) -> Placement:
    """Return the mapping of ETF, with the priority of HEFT among equal starts, and changed if memory runs out: m-ETF of
    Baechi (Jeon et al. 2020). Sending and receiving are counted as part of the way. Raises BadInputError if no
    placement fits.

    List schedulers that follow one order of priority leave devices idle while the op that is next in that order waits
    for a heavy one. ETF fills such gaps.
    """
    from search.list_scheduling.etf_kernel import earliest_start  # numba is slow to import

    place = np.empty(len(problem.graph), np.int32)
    place[problem.ranked] = np.arange(len(problem.graph), dtype=np.int32)
    return fitted(problem, earliest_start(problem.simulator.tables, problem.limits, place).tolist())
