"""Bayesian optimisation of measured step times: the first stage of HTF-MPR, which knows nothing of the simulator."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from search.learned.results import results_s
from search.learned.skopt_adapter import ranked
from search.learned.stretches import Point, Stretches
from search.problem.problem import Placement, Problem
from search.problem.searcher import Searcher, SearchExhausted, Stop, never

RANDOM_TRIES = 200


@dataclass(frozen=True)
class BayesianSettings:
    """What is modelled, and of what."""

    dimensions: int = 64  # stretches that the units are gathered into, at most
    rows: int = 1_000  # results that the model learns from: of more, half the fastest and half the latest others
    random: int = 6  # random mappings measured before the model is asked
    near: int = 300  # candidates made from the fastest mappings, beside random ones
    centres: int = 5  # how many of the fastest


class Bayesian(Searcher):
    """Asks single devices and random mappings, then the candidate of the largest expected improvement.

    The model, fitted anew for each ask, sees the device of each stretch of units and the logarithm of the measured
    seconds. A failure counts as twice the slowest measured mapping, and what was asked and not told as the mean.
    Bayesian optimisation of wall-clock times is the first stage of HTF-MPR (Albaqsami 2020). The stretches and the
    candidates around the fastest mappings are ours, because in many dimensions a thousand random points are all bad.
    """

    model: ClassVar[str]
    predicts: ClassVar[bool] = False
    defaults: ClassVar[BayesianSettings] = BayesianSettings()

    def __init__(
        self, problem: Problem, *, seed: int = 0, stop: Stop = never, settings: BayesianSettings | None = None
    ) -> None:
        super().__init__(problem, seed=seed, stop=stop)
        self.settings = settings or self.defaults

    @cached_property
    def stretches(self) -> Stretches:
        """What the model chooses devices for."""
        return Stretches(self.problem, self.settings.dimensions)

    @cached_property
    def singles(self) -> list[Placement]:
        """Everything on one device; of devices that are alike, on the first."""
        return self.problem.unlike_singles()

    def _propose(self) -> Placement:
        single = next((placement for placement in self.singles if self.is_new(placement)), None)
        if single is not None:
            return single
        begun = len(self.asked.keys() | self.told.keys()) >= len(self.singles) + self.settings.random
        best = self._best() if begun and self.stretches.choices and not self.stop() else None
        return best or self._drawn() or self.first_new()

    def _best(self) -> Placement | None:
        """The new placement of the largest expected improvement; None before the first success."""
        known = results_s(self.told)
        if not known:
            return None
        rows = self._rows(known)
        points = [self.stretches.point(placement) for placement in rows]
        log_s = [math.log(max(step_s, 1e-12)) for step_s in rows.values()]
        waiting = [self.stretches.point(p) for p in self.asked if p not in self.told]
        log_s += [sum(log_s) / len(log_s)] * len(waiting)
        near = self._near([self.stretches.point(p) for p in sorted(known, key=lambda p: (known[p], p))])
        seed = self.rng.getrandbits(31)
        candidates = ranked(self.model, self.stretches.choices, points + waiting, log_s, near, seed)
        return next((p for p in map(self.stretches.placement, dict.fromkeys(candidates)) if self.is_new(p)), None)

    def _rows(self, known: dict[Placement, float]) -> dict[Placement, float]:
        """What the model learns from, in the order it was told."""
        most = self.settings.rows
        if len(known) <= most:
            return known
        fastest = set(sorted(known, key=lambda p: (known[p], p))[: most // 2])
        latest = [p for p in known if p not in fastest][len(fastest) - most :]
        kept = fastest.union(latest)
        return {p: step_s for p, step_s in known.items() if p in kept}

    def _near(self, ranking: list[Point]) -> list[Point]:
        centres = ranking[: self.settings.centres]
        draws = range(self.settings.near)
        return [self.stretches.near(self.rng.choice(centres), self.rng) for _ in draws]

    def _drawn(self) -> Placement | None:
        """A new random placement."""
        for _ in range(RANDOM_TRIES):
            placement = self.stretches.placement(self.stretches.drawn(self.rng))
            if self.is_new(placement):
                return placement
        return None


def proposed_for(searcher: Searcher, by: type[Bayesian], settings: BayesianSettings) -> Placement:
    """What Bayesian optimisation would ask next if it knew what `searcher` knows. It draws from that one's generator.

    Raises SearchExhausted where no mapping is left.
    """
    bayesian = by(searcher.problem, stop=searcher.stop, settings=settings)
    bayesian.rng, bayesian.asked, bayesian.told = searcher.rng, searcher.asked, searcher.told
    try:
        return bayesian._propose()
    except SearchExhausted:
        return searcher.first_new()  # which says whose search it was


class BayesGp(Bayesian):
    """Bayesian optimisation by a Gaussian process with a Hamming kernel.

    Its time grows with the cube of the results and with each device of each stretch. So it gathers the units into at
    most 12 stretches and learns from at most 50 results, the 25 fastest and the 25 latest others. For more of either,
    use `bayes-et`.
    """

    name: ClassVar[str] = "bayes-gp"
    model: ClassVar[str] = "GP"
    defaults: ClassVar[BayesianSettings] = BayesianSettings(dimensions=12, rows=50)


class BayesRf(Bayesian):
    """Bayesian optimisation by a random forest, over at most 64 stretches of units."""

    name: ClassVar[str] = "bayes-rf"
    model: ClassVar[str] = "RF"


class BayesEt(Bayesian):
    """Bayesian optimisation by extremely randomised trees, over at most 64 stretches of units."""

    name: ClassVar[str] = "bayes-et"
    model: ClassVar[str] = "ET"
