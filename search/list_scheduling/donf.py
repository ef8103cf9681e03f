"""Donf: the ready op that most others wait for is next, and goes to the device where it finishes first."""

from __future__ import annotations

from typing import ClassVar

from search.list_scheduling.list_scheduler import OneMapping, Schedule, earliest_finish
from search.problem.problem import Problem
from surrogate.simulate.priority import positions, topological, weighted_out_degree


class Donf(OneMapping):
    name: ClassVar[str] = "donf"

    def _schedule(self) -> Schedule:
        return donf(self.problem)


def donf(problem: Problem) -> Schedule:
    """Schedule `problem.graph` by Donf (Lin et al., JCST 2019, as used by Li 2024).

    The ready op with the largest weighted out-degree is next, and goes to the device where it finishes first. The
    published definition was not available in full. So we could not check whether it says more about ties (here by op
    index) or insertion. Departures: see `earliest_finish`.
    """
    place = positions(weighted_out_degree(problem.graph))  # WOD(v) = sum over successors u of 1 / in-degree(u)
    return earliest_finish(problem, topological(problem.graph, place))
