"""Donf: of the ops that are ready the one that sets most free, to the device where it would finish first."""

from __future__ import annotations

from typing import ClassVar

from search.list_scheduling.list_scheduler import OneMapping, Schedule, earliest_finish, repaired
from search.problem.problem import Placement, Problem
from surrogate.simulate.priority import positions, topological, weighted_out_degree


class Donf(OneMapping):
    """Asks the one mapping that Donf gives."""

    name: ClassVar[str] = "donf"

    def _schedule(self) -> Schedule:
        return donf(self.problem)


def donf_placement(problem: Problem) -> Placement:
    """Donf's mapping, repaired where memory ran out. Raises BadInputError where nothing fits."""
    return repaired(problem, donf(problem))


def donf(problem: Problem) -> Schedule:
    """Schedule `problem.graph` by Donf (Lin et al., JCST 2019, as used by Li 2024).

    Of the ops whose producers all have a place the one with the largest weighted out-degree is next: the sum over
    its successors of 1 / in-degree, ties by op index. It goes to the device where it finishes first. That is all
    that could be learnt of the published definition; whether it says more, about ties or insertion, could not be
    checked. Departures: see `earliest_finish`.
    """
    place = positions(weighted_out_degree(problem.graph))
    return earliest_finish(problem, topological(problem.graph, place))
