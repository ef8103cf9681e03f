"""The space of placements (which unit may go where, which belong together) as flat arrays for compiled chains."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from search.initial.lines import lines
from search.local.clusters import clusters, neighbours
from search.problem.problem import Problem

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]


class Space(NamedTuple):
    """The space of placements. u: unit, d: device."""

    can: NDArray[np.bool_]  # [u, d] whether the device can run the unit
    unit_bytes: Floats  # [u]
    capacity_bytes: Floats  # [d]
    is_roomy: bool  # whether every placement fits into memory
    unit_of: Ints  # [ops]
    first_op: Ints  # [u + 1] the ops of unit u are op[first_op[u]] to op[first_op[u + 1]]
    op: Ints  # [ops]
    unit_cost_s: Floats  # [u, d]
    free: Ints  # units that more than one device can run
    by_work: Floats  # [free] cumulative shares of the work of `free`
    lines: Ints  # [lines, u] units in several orders, from which stretches are moved
    pairs: Ints  # [p, 2] units that exchange tensors
    first_member: Ints  # [clusters + 1] the units of cluster c are member[first_member[c]] to ...; small clusters first
    member: Ints


def space_of(problem: Problem) -> Space:
    """Return the space of a problem's placements."""
    limits = problem.limits
    free = np.flatnonzero(limits.feasible.sum(axis=1) > 1).astype(np.int32)
    work_s = np.array(problem.unit_mean_s)[free]
    talk = neighbours(problem)
    grouped = clusters(problem, talk)
    counts = np.bincount(limits.unit_of, minlength=len(problem.units))
    return Space(
        can=limits.feasible,
        unit_bytes=limits.unit_bytes,
        capacity_bytes=limits.capacity_bytes,
        is_roomy=problem.is_roomy,
        unit_of=limits.unit_of,
        first_op=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        op=np.argsort(limits.unit_of, kind="stable").astype(np.int32),
        unit_cost_s=np.array(problem.unit_cost_s),
        free=free,
        by_work=np.cumsum(work_s) / max(work_s.sum(), 1e-30),
        lines=lines(problem),
        pairs=talk.pairs.astype(np.int32),
        first_member=np.concatenate([[0], np.cumsum(grouped.sizes)]).astype(np.int32),
        member=grouped.member.astype(np.int32),
    )
