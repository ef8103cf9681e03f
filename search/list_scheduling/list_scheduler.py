"""The common code of list schedulers: ops are taken in a fixed order, and each goes where it finishes first."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from search.problem.memory_fit import fitted
from search.problem.problem import Limits, Placement, Problem
from search.problem.searcher import Searcher
from surrogate.costs.cost_matrix import Costs
from surrogate.simulate.kernels.arrays import Tables


@dataclass(frozen=True)
class Schedule:
    """The list scheduler's own plan, per op: its device, when it starts and when it finishes.

    complete: whether every unit found room in memory. If not, `devices` breaks a limit and must be `repaired`.
    """

    devices: tuple[int, ...]
    start_s: tuple[float, ...]
    finish_s: tuple[float, ...]
    complete: bool

    @property
    def makespan_s(self) -> float:
        """Seconds until the last op finishes."""
        return max(self.finish_s)


def earliest_finish(problem: Problem, line: NDArray[np.int32], ahead_s: Costs | None = None) -> Schedule:
    """Take the ops in `line`, a topological order of op indices, and put each on the device where it finishes first.

    ahead_s: [ops, devices] seconds to add to the finish in the choice of the device; infinite for an unwanted device.

    An op goes into the first gap that is long enough. A tensor crosses to a device once, and sending and receiving
    occupy the devices at both ends. Colocated ops follow the first of them, whose device must have memory for the whole
    unit.
    """
    tables, limits = problem.simulator.tables, problem.limits
    device, start_s, finish_s, complete = scheduled(tables, limits, line, ahead_s)
    return Schedule(tuple(device.tolist()), tuple(start_s.tolist()), tuple(finish_s.tolist()), complete)


def scheduled(
    tables: Tables,
    limits: Limits,
    line: NDArray[np.int32],
    ahead_s: Costs | None = None,
    foresight: float = 0.0,
) -> tuple[NDArray[np.int32], Costs, Costs, bool]:
    """Do `earliest_finish` for tables and limits that need not be the problem's own. foresight: as for `list_schedule`.

    Return device, start_s and finish_s by op, and whether every unit found room.
    """
    from search.list_scheduling.kernel import list_schedule  # numba is slow to import

    n = len(tables.cost_s)
    device, start_s, finish_s = np.empty(n, np.int32), np.empty(n), np.empty(n)
    ahead_s = np.zeros(tables.cost_s.shape) if ahead_s is None else ahead_s
    complete = list_schedule(tables, limits, line, ahead_s, foresight, device, start_s, finish_s)
    return device, start_s, finish_s, complete


def repaired(problem: Problem, schedule: Schedule) -> Placement:
    """Return the schedule's mapping, changed if memory ran out. Raises BadInputError if no placement fits."""
    return fitted(problem, tuple(schedule.devices[unit[0]] for unit in problem.units))


class OneMapping(Searcher):
    """A searcher that asks the one mapping that a list scheduler gives."""

    def _propose(self) -> Placement:
        placement = repaired(self.problem, self._schedule())
        if not self.is_new(placement):
            raise self.exhausted(f"{self.name} gives one mapping, and it was asked or told.")
        return placement

    @abstractmethod
    def _schedule(self) -> Schedule:
        """Return the list schedule."""
