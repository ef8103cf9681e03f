"""Stretches: consecutive units that share a device, so that a model with few dimensions can place many units."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from search.problem.memory_fit import fitted
from search.problem.problem import Placement, Problem

Point = tuple[int, ...]
"""The device of each stretch that has a choice."""


class Stretches:
    """At most `most` stretches of about equal work, in the topological order of `Problem.units`.

    If there are at most `most` units, each unit is a stretch. Heavy units make fewer stretches; no stretch is empty. A
    stretch may go to any device that can run some of its units; its other units then go where they cost least.
    """

    def __init__(self, problem: Problem, most: int) -> None:
        self.problem = problem
        self._work_s = np.array(problem.unit_mean_s)
        if not self._work_s.any():
            self._work_s = np.ones(len(problem.units))
        self.of = self._cut(most)
        able = [problem.limits.feasible[self.of == i].any(axis=0) for i in range(int(self.of.max()) + 1)]
        devices = [[int(d) for d in np.flatnonzero(row)] for row in able]
        self._free = np.array([i for i, choice in enumerate(devices) if len(choice) > 1], np.int64)
        self._fixed = np.array([choice[0] for choice in devices])
        self.choices = [devices[i] for i in self._free]

    def placement(self, point: Sequence[int]) -> Placement:
        """Return the placement with each stretch on its device, changed until it fits.

        Raises BadInputError if no placement fits.
        """
        device = self._fixed.copy()
        device[self._free] = point
        return fitted(self.problem, self.problem.moved_where_able(device[self.of]))

    def point(self, placement: Placement) -> Point:
        """Return for each stretch with a choice the device that does most of its work."""
        devices = len(self.problem.topology)
        cell = self.of * devices + np.array(placement)
        done_s = np.bincount(cell, self._work_s + 1e-30, len(self._fixed) * devices).reshape(-1, devices)
        found = [int(row.argmax()) for row in done_s[self._free]]
        return tuple(d if d in c else c[0] for d, c in zip(found, self.choices, strict=True))

    def drawn(self, rng: Random) -> Point:
        return tuple(rng.choice(devices) for devices in self.choices)

    def near(self, point: Point, rng: Random) -> Point:
        """Return `point` with some consecutive stretches on one device. Their number is uniform in its logarithm."""
        length = int(2 ** rng.uniform(0, np.log2(len(point) + 1)))
        first = rng.randrange(len(point) - length + 1)
        device = rng.choice(self.choices[first])
        moved = range(first, first + length)
        return tuple(device if i in moved and device in self.choices[i] else d for i, d in enumerate(point))

    def _cut(self, most: int) -> NDArray[np.int64]:
        """Return the stretch of each unit, [units]."""
        if len(self._work_s) <= most:
            return np.arange(len(self._work_s))
        middle = np.cumsum(self._work_s) - self._work_s / 2
        wanted = np.minimum((middle / self._work_s.sum() * most).astype(np.int64), most - 1)
        return np.unique(wanted, return_inverse=True)[1]
