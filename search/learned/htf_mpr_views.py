"""What the regressors of HTF-MPR see of mappings: numbers that the simulator gives, or only where ops run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from random import Random

import numpy as np
from numpy.typing import NDArray

from search.initial.starts import starts
from search.learned.stretches import Stretches
from search.problem.problem import Placement, Problem
from search.problem.searcher import Stop

Table = NDArray[np.float64]


@dataclass(frozen=True)
class View(ABC):
    """Features of mappings, the regressors that compete over them, and mappings to begin with."""

    problem: Problem
    most_stretches: int  # of units, whose devices are the features where the simulator gives none

    @abstractmethod
    def table(self, placements: list[Placement]) -> Table:
        """[placements, features]"""

    @abstractmethod
    def regressors(self) -> list[str]:
        """The names of those that compete."""

    @abstractmethod
    def first_population(self, size: int, rng: Random, stop: Stop) -> list[Placement]:
        """What the first population has beside measured mappings; `size` of them, if any number could be drawn."""


class SimulatedNumbers(View):
    """The step as simulated, what crosses, and what each device has to do."""

    def table(self, placements: list[Placement]) -> Table:
        """[placements, features]. The simulated step is the problem's own objective, whichever that is."""
        from surrogate.features.mapping_features import MAKESPAN

        rows = np.array(placements, np.int32)
        table = self.problem.features.of(rows[:, self.problem.limits.unit_of])
        if self.problem.objective != "makespan":
            table[~np.isfinite(table)] = 0.0  # of a link that is missing; this objective needs none
            table[:, MAKESPAN] = self.problem.predict_many(rows)
        return table

    def regressors(self) -> list[str]:
        """All but the generic performance model, which takes as long as the others together."""
        from surrogate.learn.regressors import REGRESSORS

        return [name for name in REGRESSORS if name != "generic"]

    def first_population(self, size: int, rng: Random, stop: Stop) -> list[Placement]:
        """Where searches by the simulator start."""
        return starts(self.problem, stop)


class DeviceShares(View):
    """The share of each stretch of units that each device has."""

    @cached_property
    def stretches(self) -> Stretches:
        """What the features tell apart."""
        return Stretches(self.problem, self.most_stretches)

    def table(self, placements: list[Placement]) -> Table:
        """[placements, stretches x devices]"""
        of, devices = self.stretches.of, len(self.problem.topology)
        share = (1 / np.bincount(of))[of]
        table = np.zeros((len(placements), int(of.max() + 1) * devices))
        cells = of[None, :] * devices + np.array(placements)
        np.add.at(table, (np.arange(len(placements))[:, None], cells), share[None, :])
        return table

    def regressors(self) -> list[str]:
        """Those that learn from any features."""
        from surrogate.learn.regressors import LEARNERS

        return list(LEARNERS)

    def first_population(self, size: int, rng: Random, stop: Stop) -> list[Placement]:
        """Random devices for each stretch."""
        return [self.stretches.placement(self.stretches.drawn(rng)) for _ in range(size)]
