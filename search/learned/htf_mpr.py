"""HTF-MPR's second stage: a genetic algorithm whose fitness is a learned predictor of step times.

Albaqsami 2020: (1) measure some mappings, (2) train a regressor on them that predicts the time of an iteration, (3) let
a genetic algorithm look for the mappings that it predicts fastest, measure these, and go on with (2). Features,
regressor and breeding are this project's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from search.initial.starts import starts
from search.learned.genetic import Breeding, Contrast, Fitness, Operators, evolve, most_promising
from search.learned.results import results_s
from search.learned.stretches import Stretches
from search.list_scheduling.heft import heft_placement
from search.problem.problem import Placement, Problem
from search.problem.searcher import Searcher, Stop, never

RANDOM_TRIES = 200


@dataclass(frozen=True)
class HtfMprSettings:
    """How the predictor is trained and bred for."""

    first: int = 10  # mappings measured before the first training
    stretches: int = 16  # of units, placed as one in the random ones: units drawn singly all cross, and teach little
    regressor: str | None = None  # its name; None for the default of surrogate.learn.regressors
    generations: int = 25  # before each ask
    fastest: int = 30  # of the fastest measured mappings so many join each population
    contrast: Contrast = field(default_factory=Contrast)
    breeding: Breeding = field(default_factory=Breeding)


class HtfMpr(Searcher):
    """Asks single devices, HEFT and random mappings, then the best of those bred for the predicted step time.

    The predictor is trained anew for each ask, on everything told; a failure counts as twice the slowest measured.
    Until a measurement succeeds, the predicted objective stands in for it.
    """

    name: ClassVar[str] = "htf-mpr"

    def __init__(
        self, problem: Problem, *, seed: int = 0, stop: Stop = never, settings: HtfMprSettings | None = None
    ) -> None:
        super().__init__(problem, seed=seed, stop=stop)
        self.settings = settings or HtfMprSettings()
        self.population: list[Placement] = []

    @cached_property
    def operators(self) -> Operators:
        return Operators(self.problem)

    def _propose(self) -> Placement:
        known = len(self.asked.keys() | self.told.keys())
        begin = self._beginning() if known < self.settings.first else None  # (1)
        return begin or self._best_bred() or self.first_new()  # (2), (3)

    def _beginning(self) -> Placement | None:
        """Single devices, of those that are alike the first; HEFT; random mappings."""
        return next((placement for placement in self._first_ones() if self.is_new(placement)), None)

    def _first_ones(self) -> Iterator[Placement]:
        alike = self.problem.alike
        yield from (placement for placement in self.problem.singles() if alike[placement[0]] == placement[0])
        yield heft_placement(self.problem)
        stretches = Stretches(self.problem, self.settings.stretches)
        yield from (stretches.placement(stretches.drawn(self.rng)) for _ in range(RANDOM_TRIES))

    def _best_bred(self) -> Placement | None:
        known = results_s(self.told)
        fastest = sorted(known, key=lambda p: (known[p], p))[: self.settings.fastest]
        ranking = evolve(
            self.problem, [*fastest, *(self.population or starts(self.problem, self.stop))], self._fitness(known),
            generations=self.settings.generations, rng=self.rng, stop=self.stop,
            breeding=self.settings.breeding, operators=self.operators,
        )  # fmt: skip
        self.population = [placement for _, placement in ranking[: self.settings.breeding.size]]
        return most_promising(self, ranking, self.settings.contrast)

    def _fitness(self, known: dict[Placement, float]) -> Fitness:
        """Seconds by a predictor trained on what is known; by the simulator where nothing can be learnt from it."""
        from surrogate.learn.regressors import DEFAULT, make_regressor

        regressor = make_regressor(self.settings.regressor or DEFAULT, self.rng.getrandbits(31))

        def learned(placements: list[Placement]) -> Sequence[float]:
            return self._counted(regressor.predict(self._table(placements)))

        def simulated(placements: list[Placement]) -> Sequence[float]:
            return self._counted(self.problem.predict_many(placements))

        try:
            if known:
                regressor.fit(self._table(list(known)), list(known.values()))
        except BadInputError:  # no measured mapping has finite features
            return simulated
        return learned if known else simulated

    def _table(self, placements: list[Placement]) -> NDArray[np.float64]:
        """[placements, features]. The simulated step is the problem's own objective, whichever that is."""
        from surrogate.features.mapping_features import MAKESPAN

        rows = np.array(placements, np.int32)
        table = self.problem.features.of(rows[:, self.problem.limits.unit_of])
        if self.problem.objective != "makespan":
            table[:, MAKESPAN] = self.problem.predict_many(rows)
        return table

    def _counted(self, values: NDArray[np.float64]) -> Sequence[float]:
        self.evaluations += len(values)
        counted: list[float] = values.tolist()
        return counted

    def _remember(self) -> Any:
        return [list(placement) for placement in self.population]

    def _recall(self, memory: Any) -> None:
        self.population = [tuple(placement) for placement in memory]
