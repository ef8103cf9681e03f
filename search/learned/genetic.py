"""Genetic: generations of mappings, bred so that what lies together in the graph is handed down together."""

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
from search.problem.searcher import Searcher, Stop, never

Fitness = Callable[[list[Placement]], Sequence[float]]
"""Values of placements, the lower the better; infinity and NaN are the worst."""

BARREN = 5  # generations without one new child, after which breeding ends


@dataclass(frozen=True)
class Breeding:
    """How a population changes."""

    size: int = 60  # individuals
    elites: int = 15  # of them the best, which live on as they are
    tournament: int = 3  # of so many parents drawn the best becomes one
    mating: float = 0.6  # probability, of a pair
    mutating: float = 0.7  # probability, of a child
    widest: float = 0.3  # share of the units that one mutation may concern
    keep: int = 400  # of the best individuals ever judged so many are handed back


class Operators:
    """Mating and mutation that keep together what lies together in the graph."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.moves = Moves(problem)
        alike = np.array(problem.alike)
        self._unlike = alike[:, None] != alike[None, :]

    def mate(self, one: Row, other: Row, rng: np.random.Generator) -> None:
        """Exchange a run of units in topological order, or a cluster of units that talk much.

        Alike devices have arbitrary names: each row takes its part from the other with these renamed so that both agree
        as far as they can.
        """
        units = self._region(rng)
        theirs, ours = self._names(one, other)
        one[units], other[units] = theirs[other[units]], ours[one[units]]

    def mutate(self, row: Row, widest: float, rng: np.random.Generator) -> None:
        """One to three moves: flip, run, border, follow a neighbour, cluster, swap."""
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
        """What `one` calls each device of `other`, and what `other` calls each device of `one`."""
        from scipy.optimize import linear_sum_assignment  # slow to import

        devices = len(self._unlike)
        agree = np.bincount(other * devices + one, minlength=devices * devices).reshape(devices, devices)
        worst = -len(one) * devices - 1
        ours = linear_sum_assignment(np.where(self._unlike, worst, agree), maximize=True)[1]
        return ours.astype(np.int32), np.argsort(ours).astype(np.int32)


class Population:
    """Individuals and what they are worth; remembers all that it ever judged."""

    def __init__(self, problem: Problem, fitness: Fitness) -> None:
        self.problem, self.fitness = problem, fitness
        self.value: dict[bytes, float] = {}
        self.rows: list[Row] = []

    def admitted(self, rows: Iterable[Row]) -> list[Row]:
        """Judge those of `rows` that never were, made to fit, and return them."""
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
        """The value of a row that was admitted."""
        return self.value[row.tobytes()]

    def ranked(self, most: int) -> list[tuple[float, Placement]]:
        """The best `most` ever judged, best first."""
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
    """(value, placement) of the best placements that were judged, best first, no duplicates; all of them fit.

    population: where to begin, at least one; those that do not fit are changed until they do, and mutants fill it up to
    its size. fitness: called once a generation with those never judged before. Ends early when `stop()`, once the
    given population was judged. operators: those of an earlier call for the same problem, which take time to make.
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
    """The elites of the old, then the children, then, where these are few, the best of the other old ones."""
    old = sorted(people.rows, key=people.worth)
    return [*old[: how.elites], *children, *old[how.elites :]][: how.size]


@dataclass(frozen=True)
class Contrast:
    """How a mapping that is judged no better than those asked must differ from them to be asked before others."""

    structure: float = 0.03  # share of the units by which it differs, alike devices renamed
    far: float = 1.25  # judged at most so many times the best
    recent: int = 200  # compared with so many of the last asked and told


def most_promising(
    searcher: Searcher, ranking: Sequence[tuple[float, Placement]], contrast: Contrast
) -> Placement | None:
    """Of a ranking the best new one, if it is judged better than all known in it; else the best new one that differs.

    Where none differs enough the best new one; None where none is new.
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
    """How hard to look before each ask."""

    work: int = 3_000_000  # predictions before the first ask, times the ops and edges that each of them simulates
    most: int = 6_000  # bounds on these predictions
    fewest: int = 600
    each: int = 40  # at most so many for every device that each unit may go to
    later: float = 0.2  # share of them that later asks take
    incumbents: int = 10  # of the fastest measured mappings so many join each population
    contrast: Contrast = field(default_factory=Contrast)
    breeding: Breeding = field(default_factory=Breeding)


class Genetic(Searcher):
    """Asks the best new individual of a population that evolves by prediction, and that the fastest measured join."""

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
        known = results_s(self.told)
        return sorted(known, key=lambda p: (known[p], p))[: self.settings.incumbents]

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
        """Let the starts under the new costs join the population, whose fitness is judged with each ask."""
        if self.population:
            self.population = list(dict.fromkeys((*starts(self.problem, self.stop), *self.population)))

    def _remember(self) -> Any:
        return [list(placement) for placement in self.population]

    def _recall(self, memory: Any) -> None:
        self.population = [tuple(placement) for placement in memory]
