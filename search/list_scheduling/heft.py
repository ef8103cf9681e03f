"""HEFT: ops are taken by upward rank, and each goes to the device where it finishes first."""

from __future__ import annotations

from typing import ClassVar

from search.list_scheduling.list_scheduler import OneMapping, Schedule, earliest_finish, repaired
from search.problem.problem import Placement, Problem


class Heft(OneMapping):
    name: ClassVar[str] = "heft"

    def _schedule(self) -> Schedule:
        return heft(self.problem)


def heft_placement(problem: Problem) -> Placement:
    """Return HEFT's mapping, repaired if memory ran out. Raises BadInputError if no placement fits."""
    return repaired(problem, heft(problem))


def heft(problem: Problem) -> Schedule:
    """Schedule `problem.graph` by HEFT (Topcuoglu, Hariri, Wu 2002), insertion-based.

    Departures: see `earliest_finish`.
    """
    # Task prioritizing: rank_u, eq. 8, the highest first. Processor selection: the device of the least EFT, eq. 7.
    return earliest_finish(problem, problem.ranked)
