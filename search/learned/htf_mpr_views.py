"""The features of mappings for the regressors of HTF-MPR: numbers from the simulator, or only the devices of ops."""

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
    most_stretches: int  # the most stretches of units, whose devices are the features without a simulator

    @abstractmethod
    def table(self, placements: list[Placement]) -> Table:
        """Return the features, [placements, features]."""

    @abstractmethod
    def uncalibrated(self) -> View:
        """Return the same view by costs that no measured step has corrected: calibrated costs have seen the mappings
        that regressors are to predict when they are compared.
        """

    @abstractmethod
    def regressors(self) -> list[str]:
        """Return the names of the competing regressors."""

    @abstractmethod
    def first_population(self, size: int, rng: Random, stop: Stop) -> list[Placement]:
        """Return the mappings of the first population that are not measured; `size` of them if they are random."""


class SimulatedNumbers(View):
    """The simulated step, the tensors that cross, and the work of each device."""

    def table(self, placements: list[Placement]) -> Table:
        """Return the features, [placements, features]. The simulated step is the problem's own objective."""
        from surrogate.features.mapping_features import MAKESPAN

        rows = np.array(placements, np.int32)
        table = self.problem.features.of(rows[:, self.problem.limits.unit_of])
        if self.problem.objective != "makespan":
            table[~np.isfinite(table)] = 0.0  # from a missing link, which this objective does not need
            table[:, MAKESPAN] = self.problem.predict_many(rows)
        return table

    def uncalibrated(self) -> View:
        """Return the view of the problem with profiled costs."""
        return SimulatedNumbers(self.problem.uncalibrated, self.most_stretches)

    def regressors(self) -> list[str]:
        """Return all names except the generic performance model, which takes as long as the others together."""
        from surrogate.learn.regressors import REGRESSORS

        return [name for name in REGRESSORS if name != "generic"]

    def first_population(self, size: int, rng: Random, stop: Stop) -> list[Placement]:
        """Return the starts of searches by the simulator."""
        return starts(self.problem, stop)


class DeviceShares(View):
    """The share of each stretch of units that each device has."""

    @cached_property
    def stretches(self) -> Stretches:
        """Return the stretches whose shares are the features."""
        return Stretches(self.problem, self.most_stretches)

    def table(self, placements: list[Placement]) -> Table:
        """Return the features, [placements, stretches x devices]."""
        of, devices = self.stretches.of, len(self.problem.topology)
        share = (1 / np.bincount(of))[of]
        table = np.zeros((len(placements), int(of.max() + 1) * devices))
        cells = of[None, :] * devices + np.array(placements)
        np.add.at(table, (np.arange(len(placements))[:, None], cells), share[None, :])
        return table

    def uncalibrated(self) -> View:
        """Return this view, which has no costs."""
        return self

    def regressors(self) -> list[str]:
        """Return the names of the regressors that learn from any features."""
        from surrogate.learn.regressors import LEARNERS

        return list(LEARNERS)

    def first_population(self, size: int, rng: Random, stop: Stop) -> list[Placement]:
        """Draw `size` placements with a random device for each stretch."""
        return [self.stretches.placement(self.stretches.drawn(rng)) for _ in range(size)]
