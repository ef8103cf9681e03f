"""Hybrid, the default searcher: breed and anneal on the simulator, measure the most promising mappings, and learn the
simulator's errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from placer.result import MEDIAN_SIGMAS, Measured, standard_error
from search.exact.exact import Exact
from search.learned.predicted_search import PredictedSearch, PredictedSettings
from search.learned.results import results_s
from search.local.anneal import prepare
from search.problem.problem import Placement, Problem
from search.problem.searcher import Searcher, Stop, never

if TYPE_CHECKING:
    from surrogate.learn.residual import MappingViews, Residual

NEAR = 0.2  # the largest share of the units that a move around the best measured mapping changes
FAILED_NOISE = 0.2  # the relative uncertainty of the time that stands for a failure
DRIFT = 0.03  # the relative drift of a machine between turns, which two or three steps of one turn do not show


@dataclass(frozen=True)
class HybridSettings(PredictedSettings):
    """Settings of the work before each ask, of the choice of mappings, and of the end of the search."""

    near: int = 96  # candidates that are moves around the best measured mapping, beside the `pool`
    far: float = 1.3  # candidates are predicted at most this many times slower than the best
    fewest_measured: int = 12  # mappings measured before the search may end itself
    hopeless: float = 0.1  # the search ends if the expected gain is below this share of a measurement's noise


class Hybrid(Searcher):
    """A searcher that asks the mapping with the largest expected gain over the best measured mapping, by the simulator
    and a learned residual.
    """

    name: ClassVar[str] = "hybrid"

    def __init__(
        self, problem: Problem, *, seed: int = 0, stop: Stop = never, settings: HybridSettings | None = None
    ) -> None:
        super().__init__(problem, seed=seed, stop=stop)
        self.settings = settings or HybridSettings()
        self.search = PredictedSearch(self, self.settings)
        self.told_then = -1  # how many results were known at the last complete round

    @classmethod
    def prepare(cls, objective: str) -> None:
        prepare(objective)
        Exact.prepare(objective)  # which makes all starts, too

    def bound(self) -> float:
        """The best prediction if every placement was predicted, else the bound of branch and bound, or 0."""
        return self.search.bound_s

    def _propose(self) -> Placement:
        trusted = self._simulator_is_clock()
        if self.search.is_small():
            self.search.predict_all()
        if not self.search.is_small() and self.told_then != len(self.told):
            self.search.improve(trusted)
            self.told_then = -1 if self.stop() else len(self.told)  # a round that was cut short does not count
        placement = self._best_predicted() if trusted else self._most_promising(self._residual())
        return placement if placement is not None else self.first_new()

    def _best_predicted(self) -> Placement | None:
        return next((placement for _, placement in self.search.elites.ranked() if self.is_new(placement)), None)

    def _most_promising(self, residual: Residual) -> Placement | None:
        """Return the new candidate with the largest expected gain. Mappings that were asked but not told count as if
        measured with their expected result.

        Raises SearchExhausted if the gain is too small relative to the noise of a measurement.
        """
        from surrogate.learn.residual import expected_gain

        candidates = self._candidates()
        if not candidates:
            return None
        best_s = residual.best_s()
        waiting = [placement for placement in self.asked if placement not in self.told]
        if waiting:
            residual = residual.and_believed(self._sample(waiting))
        sample = self._sample(candidates)
        gain = expected_gain(sample.predicted_s, *residual.expect(sample), best_s)
        best = int(gain.argmax())
        noise = self._least_noise()
        if self._measured_enough() and gain[best] < self.settings.hopeless * noise:
            raise self.exhausted(
                f"the expected gain of another measurement, {gain[best]:.1%}, is under the noise, {noise:.1%}."
            )
        return candidates[best]

    def _candidates(self) -> list[Placement]:
        """Return new placements: the best predicted, the starts, and moves around the best measured placement."""
        ranked = self.search.elites.ranked()
        limit = self.settings.far * ranked[0][0] if ranked else np.inf
        found = dict.fromkeys(placement for value, placement in ranked if value <= limit and self.is_new(placement))
        found = dict.fromkeys([*found][: self.settings.pool])
        found.update(dict.fromkeys(p for p in self.search.starts if self.is_new(p)))
        centre = self.centre()
        if centre is not None and not self.search.is_small():
            found.update(dict.fromkeys(self._around(centre, limit)))
        return list(found)

    def _around(self, centre: Placement, limit: float) -> list[Placement]:
        """Return new placements one move away from `centre`, predicted at most `limit` seconds."""
        rng = np.random.default_rng(self.rng.getrandbits(64))
        start = np.array(centre, np.int32)
        rows = np.repeat(start[None], self.settings.near, axis=0)
        for row in rows:
            self.search.moves.draw(row, [start], NEAR, rng)
        rows = np.unique(rows[self.problem.fits_many(rows)], axis=0)
        if not len(rows):
            return []
        values = self.search.predict(rows)
        near = [tuple(row) for row in rows[values <= limit].tolist()]
        return [placement for placement in near if self.is_new(placement)]

    def _residual(self) -> Residual:
        """Return the residual learned from all results. A failure counts with the time of `results_s` and FAILED_NOISE.
        A lack of memory does not count, because it says nothing about time and is known beforehand.
        """
        from surrogate.learn.residual import Residual

        known = {p: step_s for p, step_s in results_s(self.told).items() if self._says_something(p)}
        sample = self._sample(list(known))
        told = [self.told[placement] for placement in known]
        noise = np.array([_noise(result) if isinstance(result, Measured) else FAILED_NOISE for result in told])
        return Residual(self._work(), sample, np.log(np.array([*known.values()]) / sample.predicted_s), noise)

    def _says_something(self, placement: Placement) -> bool:
        result = self.told[placement]
        if isinstance(result, Measured):
            return True
        return result.reason != "memory" and self.problem.predict(placement) < math.inf

    def _simulator_is_clock(self) -> bool:
        """Whether every measured time equals its prediction, because the simulator stands in for the clock.

        Also True if a measured mapping is predicted to lack a link, because no residual can be learned from infinity.
        """
        known = {p: r.step_s for p, r in self.told.items() if isinstance(r, Measured)}
        if not known:
            return True
        predicted_s = self.problem.predict_many(np.array(list(known), np.int32))
        return bool((predicted_s == list(known.values())).all() or not np.isfinite(predicted_s).all())

    def _sample(self, placements: list[Placement]) -> MappingViews:
        from surrogate.learn.residual import views_of

        rows = np.array(placements, np.int32)
        return replace(
            views_of(self.problem.features, rows, self.problem.limits.unit_of),
            predicted_s=self.problem.judge_many(rows),
        )

    def _work(self) -> NDArray[np.float64]:
        """Return each unit's share of all work, [units]."""
        work_s = np.array([min(row) for row in self.problem.unit_cost_s])
        share: NDArray[np.float64] = work_s / max(float(work_s.sum()), 1e-30)
        return share

    def _least_noise(self) -> float:
        """The relative error of a measurement with all its repeats. A smaller gain would not be visible."""
        through = [r for r in self.told.values() if isinstance(r, Measured) and not r.stopped_early]
        return float(np.median([_noise(result) for result in through])) if through else 0.0

    def _measured_enough(self) -> bool:
        return len(self.told) >= self.settings.fewest_measured

    def _rebase(self) -> None:
        self.told_then = -1
        self.search.rebase()

    def _remember(self) -> dict[str, Any]:
        return {"told": self.told_then, **self.search.remember()}

    def _recall(self, memory: dict[str, Any]) -> None:
        self.told_then = memory["told"]
        self.search.recall(memory)


def _noise(result: Measured) -> float:
    """The relative standard error of a median of steps, including DRIFT; 0 for simulated steps, which all take the same
    time. A mapping that was stopped early was timed, although a single step has no spread.
    """
    error = standard_error(result)
    is_exact = error == 0.0 and not result.stopped_early
    return 0.0 if is_exact else math.hypot(error, MEDIAN_SIGMAS * DRIFT / math.sqrt(result.repeats))
