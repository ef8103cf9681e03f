"""The searchers that do not search: single devices, random placements, an expert's splits."""

from __future__ import annotations

from typing import ClassVar

from search.initial.expert import expert_placements
from search.problem.memory_fit import fitted
from search.problem.problem import Placement
from search.problem.searcher import Searcher

RANDOM_TRIES = 200


class Single(Searcher):
    """A searcher that asks all units on one device, for each device in turn, the one predicted fastest first."""

    name: ClassVar[str] = "single"

    def _propose(self) -> Placement:
        left = [placement for placement in self.problem.singles() if self.is_new(placement)]
        if not left:
            raise self.exhausted("every device that can run and hold the whole graph was asked.")
        return min(left, key=self.predict)


class Random(Searcher):
    """A searcher that asks placements that fit, with each unit on a device drawn at random."""

    name: ClassVar[str] = "random"
    predicts: ClassVar[bool] = False

    def _propose(self) -> Placement:
        for _ in range(RANDOM_TRIES):
            placement = random_placement(self)
            if self.is_new(placement):
                return placement
            if self.stop():
                break
        return self.first_new()


class Expert(Searcher):
    """A searcher that asks the intuitive splits by layer and by branch, the one predicted fastest first."""

    name: ClassVar[str] = "expert"

    def _propose(self) -> Placement:
        left = [placement for placement in expert_placements(self.problem) if self.is_new(placement)]
        if not left:
            raise self.exhausted("every split by layer or by branch was asked.")
        return min(left, key=self.predict)


def random_placement(searcher: Searcher) -> Placement:
    """Return a placement with each unit on a random device that can run it, changed until it fits into memory."""
    problem = searcher.problem
    return fitted(problem, [searcher.rng.choice(devices) for devices in problem.feasible])
