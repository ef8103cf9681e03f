"""What list schedulers share: ops in a fixed order, each to the device where it would finish first."""

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

    complete: whether every unit found room in memory; where not, `devices` breaks a limit and must be `repaired`.
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
    """Take the ops in `line`, a topological order of op indices, each to the device where it finishes first.

    ahead_s: [ops, devices] seconds to add to the finish in that choice; infinite for a device that is not wanted.

    An op goes into the first gap that holds it. A tensor crosses to a device once, and sending and receiving occupy the
    devices at both ends. Colocated ops follow the first of them, whose device must have memory for the whole unit.
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
    """`earliest_finish` of tables and limits that need not be the problem's own: device, start_s, finish_s by op, and
    whether every unit found room. foresight: as for `list_schedule`.
    """
    from search.list_scheduling.kernel import list_schedule  # numba is slow to import

    n = len(tables.cost_s)
    device, start_s, finish_s = np.empty(n, np.int32), np.empty(n), np.empty(n)
    ahead_s = np.zeros(tables.cost_s.shape) if ahead_s is None else ahead_s
    complete = list_schedule(tables, limits, line, ahead_s, foresight, device, start_s, finish_s)
    return device, start_s, finish_s, complete


def repaired(problem: Problem, schedule: Schedule) -> Placement:
    """The schedule's mapping, changed where memory ran out. Raises BadInputError where nothing fits."""
    return fitted(problem, tuple(schedule.devices[unit[0]] for unit in problem.units))


class OneMapping(Searcher):
    """Asks the one mapping that a list scheduler gives."""

    def _propose(self) -> Placement:
        placement = repaired(self.problem, self._schedule())
        if not self.is_new(placement):
            raise self.exhausted(f"{self.name} gives one mapping, and it was asked or told.")
        return placement

    @abstractmethod
    def _schedule(self) -> Schedule:
        """The list schedule."""
