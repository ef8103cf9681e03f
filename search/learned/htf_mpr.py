"""HTF-MPR: mappings are measured first, then a genetic algorithm looks for those that a regressor predicts fastest.

Albaqsami 2020, in two stages: (1) Measure an intuitive baseline, then the mappings that Bayesian optimisation asks. (2)
Compare regressors on the measurements; train the best to predict a mapping's step time; let a genetic algorithm with
this prediction as its fitness look for fast mappings; measure its best; train again. docs/htf-mpr.md says what follows
the publication.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from placer.errors import BadInputError
from placer.result import Measured
from search.initial.expert import expert_placements
from search.learned.bayesian import BayesGp, BayesianSettings, bayesian_proposal, tried_beside_singles
from search.learned.genetic import Breeding, Contrast, Fitness, Operators, evolve, most_promising
from search.learned.htf_mpr_views import DeviceShares, SimulatedNumbers, Table, View
from search.learned.results import results_s
from search.learned.stretches import Stretches
from search.list_scheduling.heft import heft_placement
from search.problem.problem import Placement, Problem
from search.problem.searcher import Searcher, Stop, fastest, never


@dataclass(frozen=True)
class HtfMprSettings:
    """Settings: how many mappings each stage gets, and how the second stage predicts and breeds."""

    first: int = 10  # mappings measured before the second stage
    bayesian: BayesianSettings = field(default_factory=lambda: BayesianSettings(dimensions=12, rows=50, random=3))
    regressor: str | None = None  # its name; None to compare all
    again: float = 1.5  # regressors are compared again when the number of known mappings has grown by this factor
    stretches: int = 32  # the most stretches of units, whose devices are the features without a simulator
    generations: int = 25  # before each ask
    fastest: int = 30  # how many of the fastest measured mappings join each population
    contrast: Contrast = field(default_factory=Contrast)
    breeding: Breeding = field(default_factory=Breeding)


class HtfMpr(Searcher):
    """A searcher that asks single devices, HEFT, the expert's mapping and proposals of Bayesian optimisation; then the
    best mapping that was bred.

    The regressors see the simulator's numbers of a mapping. The chosen regressor is trained again for each ask, on all
    results; a failure counts as twice the slowest measured mapping. Until a measurement succeeds, the predicted
    objective takes the place of the regressor.
    """

    name: ClassVar[str] = "htf-mpr"
    regressors_see: ClassVar[type[View]] = SimulatedNumbers

    def __init__(
        self, problem: Problem, *, seed: int = 0, stop: Stop = never, settings: HtfMprSettings | None = None
    ) -> None:
        super().__init__(problem, seed=seed, stop=stop)
        self.settings = settings or HtfMprSettings()
        self.population: list[Placement] = []
        self.chosen = self.settings.regressor or ""  # the regressor of the second stage
        self.compared = 0  # how many mappings were known when it was chosen

    @cached_property
    def operators(self) -> Operators:
        return Operators(self.problem)

    @cached_property
    def view(self) -> View:
        """Return the features of mappings for the regressors."""
        return self.regressors_see(self.problem, self.settings.stretches)

    @cached_property
    def stretches(self) -> Stretches:
        """Return the stretches whose devices Bayesian optimisation chooses."""
        return Stretches(self.problem, self.settings.bayesian.dimensions)

    def _propose(self) -> Placement:
        known = results_s(self.told)
        tried = self.asked.keys() | self.told.keys()
        singles = sum(placement in tried for placement in self.problem.unlike_singles())
        if singles + tried_beside_singles(self) < self.settings.first:
            begin = next((placement for placement in self._baselines() if self.is_new(placement)), None)
            return begin or self._bayesian_proposal()
        if not known and not self.predicts:  # no measurement succeeded, so there is nothing to learn from
            return self._bayesian_proposal()
        return self._second_stage(known) or self.first_new()

    def _bayesian_proposal(self) -> Placement:
        return bayesian_proposal(self, BayesGp.model, self.stretches, self.settings.bayesian)

    def _baselines(self) -> Iterator[Placement]:
        """Yield the mappings to measure before anything is learned; HEFT's mapping only with a simulator."""
        yield from self.problem.unlike_singles()
        if self.predicts:
            yield heft_placement(self.problem)
        yield from islice(expert_placements(self.problem), 1)

    def _second_stage(self, known: dict[Placement, float]) -> Placement | None:
        """Breed for the predicted step time and return the most promising placement; None if none is new."""
        breeding = self.settings.breeding
        others = self.population or self.view.first_population(breeding.size, self.rng, self.stop)
        ranking = evolve(
            self.problem, [*fastest(known, self.settings.fastest), *others], self._fitness(known),
            generations=self.settings.generations, rng=self.rng, stop=self.stop, breeding=breeding,
            operators=self.operators,
        )  # fmt: skip
        self.population = [placement for _, placement in ranking[: breeding.size]]
        return most_promising(self, ranking, self.settings.contrast)

    def _fitness(self, known: dict[Placement, float]) -> Fitness:
        """Return a fitness: seconds by a regressor trained on `known`, or by the simulator if none can be trained."""
        from surrogate.learn.regressors import make_regressor

        def learned(placements: list[Placement]) -> Sequence[float]:
            return self._counted(regressor.predict(self.view.table(placements)))

        def simulated(placements: list[Placement]) -> Sequence[float]:
            return self._counted(self.problem.predict_many(placements))

        if not known:
            return simulated
        table, step_s = self.view.table(list(known)), np.array(list(known.values()))
        try:
            self._compare()
            regressor = make_regressor(self.chosen, self.rng.getrandbits(31)).fit(table, step_s)
        except BadInputError:  # no measured mapping has finite features
            return simulated
        return learned

    def _compare(self) -> None:
        """Choose a regressor by the mappings that ran, and note why, unless one was given or the last choice is still
        good.
        """
        from surrogate.learn.selection import compared_in_order

        if self.settings.regressor or len(self.told) < self.settings.again * self.compared:
            return
        ran = {p: result.step_s for p, result in self.told.items() if isinstance(result, Measured)}
        table, step_s = self.view.uncalibrated().table(list(ran)), np.array(list(ran.values()))
        errors = compared_in_order(self.view.regressors(), table, step_s, self.rng.getrandbits(31))
        before, self.chosen, self.compared = self.chosen, next(iter(errors)), len(self.told)
        if self.chosen == before:
            return
        others = ", ".join(f"{name} {error:.1%}" for name, error in list(errors.items())[1:3])
        erred = f", which erred by {errors[self.chosen]:.1%} where it predicted later mappings from earlier ones"
        erred += f" (next: {others})" if others else ""
        self.notes.append(
            f"{'stage 2' if not before else 'another fitness'} after {self.compared} mappings: the genetic algorithm's "
            f"fitness is {self.chosen}{erred if math.isfinite(errors[self.chosen]) else ''}."
        )

    def _counted(self, values: Table) -> Sequence[float]:
        self.evaluations += len(values)
        counted: list[float] = values.tolist()
        return counted

    def _remember(self) -> Any:
        population = [list(placement) for placement in self.population]
        return {"population": population, "chosen": self.chosen, "compared": self.compared}

    def _recall(self, memory: Any) -> None:
        self.population = [tuple(placement) for placement in memory["population"]]
        self.chosen, self.compared = memory["chosen"], memory["compared"]


class HtfMprPlain(HtfMpr):
    """HTF-MPR without a simulator: no HEFT, and the regressors see only the devices of ops."""

    name: ClassVar[str] = "htf-mpr-plain"
    predicts: ClassVar[bool] = False
    regressors_see: ClassVar[type[View]] = DeviceShares
