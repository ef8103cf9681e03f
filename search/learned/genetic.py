"""Genetic search: generations of mappings, bred so that units close together in the graph are inherited together."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from search.initial.starts import starts
from search.learned.deap_adapter import Row, bred
from search.learned.results import results_s
from search.local.moves import Moves
from search.problem.memory_fit import fitted
from search.problem.problem import Placement, Problem
from search.problem.searcher import Searcher, Stop, fastest, never

Fitness = Callable[[list[Placement]], Sequence[float]]
"""A function that returns values of placements, the lower the better; infinity and NaN are the worst."""

BARREN = 5  # breeding ends after this many generations without a new child


@dataclass(frozen=True)
class Breeding:
    """Settings of how a population changes."""

    size: int = 60  # individuals
    elites: int = 15  # the best individuals, which live on unchanged
    tournament: int = 3  # the best of this many random individuals becomes a parent
    mating: float = 0.6  # probability that a pair mates
    mutating: float = 0.7  # probability that a child mutates
    widest: float = 0.3  # the largest share of the units that one mutation may change
    keep: int = 400  # how many of the best individuals ever judged are returned


class Operators:
    """Mating and mutation that keep units together which are close in the graph."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.moves = Moves(problem)
        alike = np.array(problem.alike)
        self._unlike = alike[:, None] != alike[None, :]

    def mate(self, one: Row, other: Row, rng: np.random.Generator) -> None:
        """Exchange a run of units in topological order, or a cluster of units that exchange much.

        Alike devices have arbitrary names. So each row takes the units from the other with alike devices renamed such
        that the two rows agree as much as possible.
        """
        units = self._region(rng)
        theirs, ours = self._names(one, other)
        one[units], other[units] = theirs[other[units]], ours[one[units]]

    def mutate(self, row: Row, widest: float, rng: np.random.Generator) -> None:
        """Change `row` by one to three moves of search/local/kernels/draws.py. widest: as in Breeding."""
        for _ in range(int(rng.integers(1, 4))):
            self.moves.draw(row, [row], widest, rng)

    def _region(self, rng: np.random.Generator) -> NDArray[np.int64]:
        clusters = self.moves.clusters
        if clusters and rng.random() < 0.5:
            return clusters[int(rng.integers(len(clusters)))].astype(np.int64)
        first, end = np.sort(rng.integers(self.moves.units + 1, size=2))
        run: NDArray[np.int64] = np.arange(first, max(end, first + 1)) % self.moves.units
        return run

    def _names(self, one: Row, other: Row) -> tuple[Row, Row]:
        """Return the name in `one` of each device of `other`, and the name in `other` of each device of `one`."""
        from scipy.optimize import linear_sum_assignment  # slow to import

        devices = len(self._unlike)
        agree = np.bincount(other * devices + one, minlength=devices * devices).reshape(devices, devices)
        worst = -len(one) * devices - 1
        ours = linear_sum_assignment(np.where(self._unlike, worst, agree), maximize=True)[1]
        return ours.astype(np.int32), np.argsort(ours).astype(np.int32)


class Population:
    """Individuals, and the values of all individuals that were ever judged."""

    def __init__(self, problem: Problem, fitness: Fitness) -> None:
        self.problem, self.fitness = problem, fitness
        self.value: dict[bytes, float] = {}
        self.rows: list[Row] = []

    def admitted(self, rows: Iterable[Row]) -> list[Row]:
        """Make `rows` fit, judge those that were never judged before, and return these."""
        candidates = list(rows)
        if not candidates:
            return []
        fits = self.problem.fits_many(candidates)
        new: dict[bytes, Row] = {}
        for row, fit in zip(candidates, fits, strict=True):
            fitting = row if fit else self._fitted(row)
            if fitting is not None and fitting.tobytes() not in self.value:
                new[fitting.tobytes()] = fitting
        if new:
            values = self.fitness([tuple(row.tolist()) for row in new.values()])
            judged = np.nan_to_num(np.asarray(values, np.float64), nan=np.inf, posinf=np.inf, neginf=-np.inf)
            self.value.update(zip(new, judged.tolist(), strict=True))
        return list(new.values())

    def worth(self, row: Row) -> float:
        """Return the value of a row that was admitted."""
        return self.value[row.tobytes()]

    def ranked(self, most: int) -> list[tuple[float, Placement]]:
        """Return (value, placement) of the best `most` individuals ever judged, best first."""
        best = sorted(self.value.items(), key=lambda item: (item[1], item[0]))[:most]
        found = [(value, tuple(np.frombuffer(key, np.int32).tolist())) for key, value in best]
        return sorted(found)

    def _fitted(self, row: Row) -> Row | None:
        try:
            return np.array(fitted(self.problem, row.tolist()), np.int32)
        except BadInputError:
            return None


def evolve(
    problem: Problem,
    population: Sequence[Placement],
    fitness: Fitness,
    *,
    generations: int,
    rng: random.Random,
    stop: Stop,
    breeding: Breeding | None = None,
    operators: Operators | None = None,
) -> list[tuple[float, Placement]]:
    """Breed generations. Return (value, placement) of the best placements judged, best first, without duplicates; all
    of them fit.

    population: the first individuals, at least one. Those that do not fit are changed until they do. fitness: called
    once per generation with the placements never judged before. operators: those of an earlier call for the same
    problem, because making them takes time. Ends early when `stop()`, but not before the given population was judged.
    """
    how, ops = breeding or Breeding(), operators or Operators(problem)
    draws = np.random.default_rng(rng.getrandbits(64))
    people = Population(problem, fitness)
    people.rows = people.admitted(np.array(placement, np.int32) for placement in population)
    barren = 0
    for _ in range(generations):
        if stop() or not people.rows or barren >= BARREN:
            break
        children = bred(
            people.rows, [people.worth(row) for row in people.rows], how.size,
            mate=lambda one, other: ops.mate(one, other, draws),
            mutate=lambda row: ops.mutate(row, how.widest, draws),
            tournament=how.tournament, mating=how.mating, mutating=how.mutating, seed=rng.getrandbits(64),
        )  # fmt: skip
        admitted = people.admitted(children)
        barren = 0 if admitted else barren + 1
        people.rows = _survivors(people, admitted, how)
    return people.ranked(how.keep)


def _survivors(people: Population, children: list[Row], how: Breeding) -> list[Row]:
    """Return the old elites, then the children, then, if the children are few, the best of the other old rows."""
    old = sorted(people.rows, key=people.worth)
    return [*old[: how.elites], *children, *old[how.elites :]][: how.size]


@dataclass(frozen=True)
class Contrast:
    """Settings of how much a mapping must differ from those asked and told, if it is not judged better than them."""

    structure: float = 0.03  # the least share of the units by which it differs, with alike devices renamed
    far: float = 1.25  # its value is at most this many times the best known value
    recent: int = 200  # it is compared with this many of the last mappings asked and told


def most_promising(
    searcher: Searcher, ranking: Sequence[tuple[float, Placement]], contrast: Contrast
) -> Placement | None:
    """Return the best new placement of a ranking if its value is better than those of all known placements in it; else
    the best new placement that differs.

    If none differs enough, return the best new placement; None if none is new.
    """
    new = [(value, placement) for value, placement in ranking if searcher.is_new(placement)]
    known = [value for value, placement in ranking if not searcher.is_new(placement)]
    if not new or not known or new[0][0] < known[0]:
        return new[0][1] if new else None
    canonical = searcher.problem.canonical
    others = np.array([canonical(p) for p in [*searcher.asked, *searcher.told][-contrast.recent :]])
    for value, placement in new:
        if value > known[0] * contrast.far:
            break
        if (others != np.array(canonical(placement))).mean(axis=1).min() >= contrast.structure:
            return placement
    return new[0][1]


@dataclass(frozen=True)
class GeneticSettings:
    """Settings of the work before each ask."""

    work: int = 3_000_000  # predictions before the first ask, times the ops and edges that each prediction simulates
    most: int = 6_000  # bounds on these predictions
    fewest: int = 600
    each: int = 40  # the most predictions per unit and device that it may go to
    later: float = 0.2  # share of these predictions for each later ask
    incumbents: int = 10  # how many of the fastest measured mappings join each population
    contrast: Contrast = field(default_factory=Contrast)
    breeding: Breeding = field(default_factory=Breeding)


class Genetic(Searcher):
    """A searcher that asks the best new individual of a population. The population evolves by predicted fitness, and
    the fastest measured mappings join it.
    """

    name: ClassVar[str] = "genetic"

    def __init__(
        self, problem: Problem, *, seed: int = 0, stop: Stop = never, settings: GeneticSettings | None = None
    ) -> None:
        super().__init__(problem, seed=seed, stop=stop)
        self.settings = settings or GeneticSettings()
        self.population: list[Placement] = []

    @cached_property
    def operators(self) -> Operators:
        return Operators(self.problem)

    def _propose(self) -> Placement:
        population = [*self._incumbents(), *(self.population or starts(self.problem, self.stop))]
        ranking = evolve(
            self.problem, population, self._predict_all, generations=self._generations(), rng=self.rng,
            stop=self.stop, breeding=self.settings.breeding, operators=self.operators,
        )  # fmt: skip
        self.population = [placement for _, placement in ranking[: self.settings.breeding.size]]
        return most_promising(self, ranking, self.settings.contrast) or self.first_new()

    def _incumbents(self) -> list[Placement]:
        return fastest(results_s(self.told), self.settings.incumbents)

    def _predict_all(self, placements: list[Placement]) -> Sequence[float]:
        self.evaluations += len(placements)
        values: list[float] = self.problem.predict_many(placements).tolist()
        return values

    def _generations(self) -> int:
        choices = sum(len(devices) for devices in self.problem.feasible)
        most = min(self.settings.most, self.settings.each * choices)
        predictions = min(most, max(self.settings.fewest, self.settings.work // self.problem.ops_and_edges))
        share = self.settings.later if self.population else 1.0
        return max(1, int(predictions * share) // self.settings.breeding.size)

    def _rebase(self) -> None:
        """Let the starts under the new costs join the population. Each ask judges its fitness again."""
        if self.population:
            self.population = list(dict.fromkeys((*starts(self.problem, self.stop), *self.population)))

    def _remember(self) -> Any:
        return [list(placement) for placement in self.population]

    def _recall(self, memory: Any) -> None:
        self.population = [tuple(placement) for placement in memory]
