"""PEFT: each op goes to the device with the earliest finish plus the least seconds that must follow."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from search.list_scheduling.list_scheduler import OneMapping, Schedule, earliest_finish
from search.problem.problem import Problem
from surrogate.costs.cost_matrix import Costs
from surrogate.simulate.priority import positions, topological


class Peft(OneMapping):
    name: ClassVar[str] = "peft"

    def _schedule(self) -> Schedule:
        return peft(self.problem)


def peft(problem: Problem) -> Schedule:
    """Schedule `problem.graph` by PEFT (Arabnejad & Barbosa 2014), insertion-based.

    Departures: a crossing takes the time of its own link, with the work at both ends, not the mean of all links.
    Devices that an op cannot use, or from which its consumers cannot be reached, are left out of the mean. See also
    `earliest_finish`.
    """
    table_s = optimistic_cost_s(problem)
    known = np.isfinite(table_s) & problem.limits.feasible[problem.limits.unit_of]
    # rank_oct(v) = mean over devices of OCT(v, d)
    rank = np.where(known, table_s, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    # The ready op with the highest rank_oct is next, on the device of the least O_EFT(v, d) = EFT(v, d) + OCT(v, d).
    return earliest_finish(problem, topological(problem.graph, positions(rank)), table_s)


def optimistic_cost_s(problem: Problem) -> Costs:
    """OCT[v, d]: seconds from the end of op v on d to the end of the step if each later op has its best device.

    OCT(v, d) = max over consumers u of min over devices e of (OCT(u, e) + cost(u, e) + crossing(d, e)).
    Infinity if v cannot run on d, or if a consumer can only be reached over missing links.
    """
    return problem.tail_s
