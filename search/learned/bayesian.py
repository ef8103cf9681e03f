"""Bayesian optimisation of measured step times: the first stage of HTF-MPR, which does not use the simulator."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from search.learned.results import results_s
from search.learned.skopt_adapter import ranked
from search.learned.stretches import Stretches
from search.problem.problem import Placement, Problem
from search.problem.searcher import Searcher, Stop, fastest, never

RANDOM_TRIES = 200


@dataclass(frozen=True)
class BayesianSettings:
    """Settings of the model and its candidates."""

    dimensions: int = 64  # the most stretches into which the units are gathered
    rows: int = 1_000  # the most results to learn from; of more, half the fastest and half the latest others
    random: int = 6  # random mappings measured before the model is asked
    near: int = 300  # candidates made from the fastest mappings, beside random ones
    centres: int = 5  # how many of the fastest mappings these candidates are made from


class Bayesian(Searcher):
    """A searcher that asks single devices and random mappings, then the candidate of the largest expected improvement.

    The model is fitted again for each ask. It sees the device of each stretch of units and the logarithm of the
    measured seconds. A failure counts as twice the slowest measured mapping. A mapping that was asked but not told
    counts as the mean. Bayesian optimisation of wall-clock times is the first stage of HTF-MPR (Albaqsami 2020). The
    stretches and the candidates around the fastest mappings are ours, because in many dimensions a thousand random
    points are all bad.
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
        """Return the stretches whose devices the model chooses."""
        return Stretches(self.problem, self.settings.dimensions)

    def _propose(self) -> Placement:
        return bayesian_proposal(self, self.model, self.stretches, self.settings)


def bayesian_proposal(searcher: Searcher, model: str, stretches: Stretches, settings: BayesianSettings) -> Placement:
    """Return the next placement of Bayesian optimisation, with the results and the random generator of `searcher`.

    model: one of skopt_adapter.MODELS, which sees the device of each of the stretches. Raises SearchExhausted if no
    mapping is left.
    """
    singles = searcher.problem.unlike_singles()
    single = next((placement for placement in singles if searcher.is_new(placement)), None)
    if single is not None:
        return single
    begun = tried_beside_singles(searcher) >= settings.random
    has_model = begun and stretches.choices and not searcher.stop()
    best = _best(searcher, model, stretches, settings) if has_model else None
    return best or _drawn(searcher, stretches) or searcher.first_new()


def tried_beside_singles(searcher: Searcher) -> int:
    """Return how many mappings on several devices were asked or told. Single devices do not count, because a caller may
    have told all of them, alike or not.
    """
    return sum(len(set(placement)) > 1 for placement in searcher.asked.keys() | searcher.told.keys())


def _best(searcher: Searcher, model: str, stretches: Stretches, settings: BayesianSettings) -> Placement | None:
    """Return the new placement of the largest expected improvement; None before the first success."""
    known = results_s(searcher.told)
    if not known:
        return None
    learned = learned_from(known, settings.rows)
    points = [stretches.point(placement) for placement in learned]
    log_s = [math.log(max(step_s, 1e-12)) for step_s in learned.values()]
    waiting = [stretches.point(p) for p in searcher.asked if p not in searcher.told]
    log_s += [sum(log_s) / len(log_s)] * len(waiting)
    centres = [stretches.point(placement) for placement in fastest(known, settings.centres)]
    near = [stretches.near(searcher.rng.choice(centres), searcher.rng) for _ in range(settings.near)]
    seed = searcher.rng.getrandbits(31)
    candidates = ranked(model, stretches.choices, points + waiting, log_s, near, seed)
    return next((p for p in map(stretches.placement, dict.fromkeys(candidates)) if searcher.is_new(p)), None)


def learned_from(known: dict[Placement, float], most: int) -> dict[Placement, float]:
    """Return at most `most` results: half are the fastest, half the latest others, in the order they were told."""
    if len(known) <= most:
        return known
    fast = set(fastest(known, most // 2))
    latest = [p for p in known if p not in fast][len(fast) - most :]
    kept = fast.union(latest)
    return {p: step_s for p, step_s in known.items() if p in kept}


def _drawn(searcher: Searcher, stretches: Stretches) -> Placement | None:
    """Draw a new random placement; None if RANDOM_TRIES draws, or the time, were not enough."""
    for _ in range(RANDOM_TRIES):
        placement = stretches.placement(stretches.drawn(searcher.rng))
        if searcher.is_new(placement):
            return placement
        if searcher.stop():
            break
    return None


class BayesGp(Bayesian):
    """Bayesian optimisation by a Gaussian process with a Hamming kernel.

    Its time grows with the cube of the number of results and with each device of each stretch. So it gathers the units
    into at most 12 stretches and learns from at most 50 results: the 25 fastest and the 25 latest others. For more
    stretches or results, use `bayes-et`.
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
