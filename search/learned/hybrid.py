"""Hybrid, the default: breed and anneal on the simulator, measure what promises most, learn what it misses."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from placer.result import Measured, standard_error
from search.exact.exact import Exact, ExactSettings
from search.initial.starts import starts
from search.list_scheduling.perturbed_heft import HeftVariant, breed
from search.local.anneal import SIMULATOR_AS_CLOCK, Cooling, Elites, anneal, prepare
from search.local.moves import Moves
from search.problem.problem import Placement, Problem
from search.problem.searcher import Deadline, Searcher, Stop, fitting_placements, never

if TYPE_CHECKING:
    from surrogate.learn.residual import MappingViews, Residual

Rows = NDArray[np.int32]

AT_ONCE = 4096  # placements that are predicted together
FEW_UNITS = 64  # of a problem whose placements are predicted whole, or more of fewer placements
NEAR = 0.2  # of the units, at most, concerns a move around the best measured
DRIFT = 0.03  # relative: what a machine drifts by between turns, which two or three steps of one turn do not show


@dataclass(frozen=True)
class HybridSettings:
    """How hard to look, and when to stop."""

    # Predictions of a round. Where nothing but the simulator judges, rounds double.
    work: int = 6_000_000  # predictions times the ops and edges of each
    doublings: int = 5  # rounds after which they double no more
    quicker: float = 3.0  # annealing moves per budgeted prediction, because most are not simulated whole
    load_quicker: float = 60.0  # the same for max-load
    last: float = 3.0  # a round takes all the time that is left where that is less than for so many such rounds
    per_flip: int = 50  # at most so many predictions for each unit and device
    most: int = 8_000  # predictions of a round
    fewest: int = 640
    bred: float = 0.3  # share of a round that goes into variants of HEFT
    heft_predictions: int = 8  # a variant of HEFT takes as long as so many predictions
    hotter: float = 4.0  # every other round begins from all kinds of starts, and so much hotter
    enumerate: int = 65_536  # spaces of up to so many placements are predicted whole
    certify: int = 256  # units up to which branch and bound has a go, where nothing but the simulator judges
    certify_work: int = 200_000_000  # its ExactSettings.work
    # What is measured next.
    pool: int = 256  # candidates
    near: int = 96  # of them moves around the best measured
    far: float = 1.3  # none is predicted so many times slower than the best
    fewest_measured: int = 12  # mappings measured before the search may end itself
    hopeless: float = 0.1  # it ends where the expected gain is below this share of a measurement's noise


class Hybrid(Searcher):
    """Asks the mapping with the largest expected gain over the best measured, by simulator and learned residual."""

    name: ClassVar[str] = "hybrid"

    def __init__(
        self, problem: Problem, *, seed: int = 0, stop: Stop = never, settings: HybridSettings | None = None
    ) -> None:
        super().__init__(problem, seed=seed, stop=stop)
        self.settings = settings or HybridSettings()
        self.elites = Elites(self.settings.pool)
        self.rounds = 0
        self.told_then = -1
        self._per_s = 0.0  # of a round's budget, as fast as the last one went
        self._starts: list[Placement] = []
        self._least = 0.0
        self._certified = False  # whether branch and bound had its go

    @classmethod
    def prepare(cls, objective: str) -> None:
        prepare(objective)

    @cached_property
    def moves(self) -> Moves:
        return Moves(self.problem)

    def bound(self) -> float:
        """The best prediction where every placement was predicted, else what branch and bound has proven, or 0."""
        return self._least

    def _propose(self) -> Placement:
        trusted = self._simulator_is_clock()
        if self._is_small():
            self._enumerate()
        elif self.told_then != len(self.told):
            if trusted and self.rounds and not self._certified and len(self.problem.units) <= self.settings.certify:
                self._certify()
                self._certified = not self.stop()
            self._improve(self._budget(doubled=trusted), trusted)
            self.told_then = len(self.told)
        placement = self._best_predicted() if trusted else self._most_promising(self._residual())
        return placement if placement is not None else self.first_new()

    # What the simulator says.

    def _enumerate(self) -> None:
        """Predict every placement there is."""
        if self.rounds:
            return
        self.elites.room = self.settings.enumerate
        every, whole = fitting_placements(self.problem), False
        while not (self.stop() and self.elites.value):
            part = np.array(list(islice(every, AT_ONCE)), np.int32)
            if not len(part):
                whole = True
                break
            self.elites.add(part, self._predict(part))
        self.rounds = 1
        self._least = self.elites.ranked()[0][0] if whole and self.elites.value else 0.0

    def _certify(self) -> None:
        """Let branch and bound improve on the best, or prove a bound."""
        limits = ExactSettings(enumerate=0, work=self.settings.certify_work)
        exact = Exact(self.problem, seed=self.rng.getrandbits(32), stop=self.stop, settings=limits)
        exact.ask()
        self.evaluations += exact.evaluations
        self._least = exact.bound()
        best = exact.ranking[: self.settings.pool]
        self.elites.add(np.array([p for _, p in best], np.int32), np.array([value for value, _ in best]))

    def _improve(self, budget: int, trusted: bool) -> None:
        """One round of so many predictions: variants of HEFT, then annealing from the best of all that is known.

        trusted: whether the simulator is the clock.
        """
        rng = np.random.default_rng(self.rng.getrandbits(64))
        if self.rounds == 0:
            self._begin()
        whole, begin_s = budget, self._left_s()
        if self.problem.objective == "makespan":
            budget -= self._breed(int(budget * self.settings.bred), rng)
        self.moves.forget()
        explore = self.rounds % 2 == 1
        cooling = SIMULATOR_AS_CLOCK[self.problem.objective] if trusted else Cooling()
        cooling = replace(cooling, hot=cooling.hot * self.settings.hotter) if explore else cooling
        lines = self._lines(explore, cooling)
        moves = int(
            budget * (self.settings.quicker if self.problem.objective == "makespan" else self.settings.load_quicker)
        )
        self.evaluations += anneal(
            self.problem, self.moves, lines, self.elites, evaluations=moves, rng=rng, stop=self.stop, cooling=cooling
        )
        self.rounds += 1
        self._per_s = whole / max(begin_s - self._left_s(), 1e-6) if begin_s < math.inf else 0.0

    def _begin(self) -> None:
        self._starts = starts(self.problem, self.stop)
        rows = np.array(self._starts, np.int32)
        self.elites.add(rows, self._predict(rows))

    def _breed(self, predictions: int, rng: np.random.Generator) -> int:
        """Breed variants of HEFT in the time of so many predictions; returns how many were spent."""
        rounds = predictions // self.settings.heft_predictions
        if rounds < 1 or self.stop():
            return 0
        found = breed(self.problem, HeftVariant.plain(self.problem), rounds=rounds, rng=rng, stop=self.stop)
        self.evaluations += rounds
        self.elites.add(np.array([p for _, p in found], np.int32), np.array([value for value, _ in found]))
        return rounds * self.settings.heft_predictions

    def _lines(self, explore: bool, cooling: Cooling) -> list[Placement]:
        """Where annealing begins: the best predicted and measured; with `explore`, mostly or only other starts."""
        chains = cooling.chains
        if explore and cooling.afresh and self._starts:
            return self.rng.sample(self._starts, min(len(self._starts), chains))
        best = [placement for _, placement in self.elites.ranked()[:chains]]
        measured = self.incumbent()
        known = best[: chains // 4] + ([measured] if measured is not None else [])
        if not explore:
            return known or best or self._starts[:chains]
        others = self._starts + [placement for _, placement in self.elites.ranked()[chains:]]
        return known + (self.rng.sample(others, min(len(others), chains - len(known))) if others else [])

    def _predict(self, rows: Rows) -> NDArray[np.float64]:
        self.evaluations += len(rows)
        return self.problem.predict_many(rows)

    def _budget(self, doubled: bool) -> int:
        """Predictions of the next round."""
        each = len(self.problem.graph) + len(self.problem.graph.edges)
        flips = self.problem.limits.feasible.size
        most = min(self.settings.most, self.settings.per_flip * flips, self.settings.work // each)
        first = max(self.settings.fewest, most)
        if not doubled:
            return first
        wanted = first << min(self.rounds, self.settings.doublings)
        affordable = int(self._per_s * self._left_s()) if self._per_s else 0
        return max(self.settings.fewest, affordable) if 0 < affordable < self.settings.last * wanted else wanted

    def _left_s(self) -> float:
        """Seconds that are left; infinite where nobody knows."""
        return self.stop.left_s() if isinstance(self.stop, Deadline) else math.inf

    def _is_small(self) -> bool:
        return self.problem.space * len(self.problem.units) <= self.settings.enumerate * FEW_UNITS

    # What measuring adds.

    def _best_predicted(self) -> Placement | None:
        return next((placement for _, placement in self.elites.ranked() if self.is_new(placement)), None)

    def _most_promising(self, residual: Residual) -> Placement | None:
        """The new candidate with the largest expected gain, as if those asked and not told had come out as expected.

        Raises SearchExhausted where that gain is too small beside the noise of a measurement.
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
        """New placements: the best predicted, and moves around the best measured that change something."""
        ranked = self.elites.ranked()
        limit = self.settings.far * ranked[0][0] if ranked else np.inf
        found = dict.fromkeys(placement for value, placement in ranked if value <= limit and self.is_new(placement))
        found = dict.fromkeys([*found][: self.settings.pool])
        found.update(dict.fromkeys(p for p in self._starts if self.is_new(p)))
        centre = self.incumbent()
        if centre is not None and not self._is_small():
            found.update(dict.fromkeys(self._around(centre, limit)))
        return list(found)

    def _around(self, centre: Placement, limit: float) -> list[Placement]:
        """New placements one move away."""
        rng = np.random.default_rng(self.rng.getrandbits(64))
        start = np.array(centre, np.int32)
        rows = np.repeat(start[None], self.settings.near, axis=0)
        for row in rows:
            self.moves.draw(row, [start], NEAR, rng)
        rows = np.unique(rows[self.problem.fits_many(rows)], axis=0)
        if not len(rows):
            return []
        values = self._predict(rows)
        near = [tuple(row) for row in rows[values <= limit].tolist()]
        return [placement for placement in near if self.is_new(placement)]

    def _residual(self) -> Residual:
        """Learned from all that was measured."""
        from surrogate.learn.residual import Residual

        known = {p: r for p, r in self.told.items() if isinstance(r, Measured)}
        sample = self._sample(list(known))
        step_s = np.array([result.step_s for result in known.values()])
        noise = np.array([_noise(result) for result in known.values()])
        return Residual(self._work(), sample, np.log(step_s / sample.predicted_s), noise)

    def _simulator_is_clock(self) -> bool:
        """Whether every measured time is what was predicted, as where the simulator stands in for the clock."""
        known = {p: r.step_s for p, r in self.told.items() if isinstance(r, Measured)}
        if not known:
            return True
        predicted_s = self.problem.predict_many(np.array(list(known), np.int32))
        return bool((predicted_s == list(known.values())).all() or not np.isfinite(predicted_s).all())

    def _sample(self, placements: list[Placement]) -> MappingViews:
        from surrogate.learn.residual import sampled

        rows = np.array(placements, np.int32)
        return replace(
            sampled(self.problem.features, rows, self.problem.limits.unit_of), predicted_s=self.problem.judge_many(rows)
        )

    def _work(self) -> NDArray[np.float64]:
        """[units] shares of all work."""
        work_s = np.array([min(row) for row in self.problem.unit_cost_s])
        share: NDArray[np.float64] = work_s / max(float(work_s.sum()), 1e-30)
        return share

    def _least_noise(self) -> float:
        """The relative error of a measurement with all its repeats, which a gain must exceed to be seen."""
        through = [r for r in self.told.values() if isinstance(r, Measured) and not r.stopped_early]
        return float(np.median([_noise(result) for result in through])) if through else 0.0

    def _measured_enough(self) -> bool:
        return len(self.told) >= self.settings.fewest_measured

    def _rebase(self) -> None:
        """Predict the elites again, and the starts under the new costs; a small space is enumerated again."""
        elites, self.elites = self.elites.ranked(), Elites(self.settings.pool)
        self.told_then, self._least = -1, 0.0
        if self._is_small():
            self.rounds = 0
        elif self.rounds:
            self._begin()
            rows = np.array([placement for _, placement in elites], np.int32)
            self.elites.add(rows, self._predict(rows))

    def _remember(self) -> dict[str, Any]:
        if self._is_small():
            return {"rounds": 0, "told": self.told_then, "elites": [], "least": self._least, "moves": None}
        return {
            "rounds": self.rounds,
            "told": self.told_then,
            "elites": [[value, list(placement)] for value, placement in self.elites.ranked()],
            "least": self._least,
            "certified": self._certified,
            "moves": self.moves.share.tolist() if self.rounds else None,
        }

    def _recall(self, memory: dict[str, Any]) -> None:
        self.rounds, self.told_then, self._least = memory["rounds"], memory["told"], memory["least"]
        self._certified = memory.get("certified", self.rounds > 1)
        self.elites = Elites(self.settings.pool)
        for value, placement in memory["elites"]:
            self.elites.value[np.array(placement, np.int32).tobytes()] = value
        if self.rounds:
            self._starts = starts(self.problem, never)
            self.moves.share = np.array(memory["moves"])


def _noise(result: Measured) -> float:
    """The relative standard error of a median of steps, with DRIFT; 0 where all steps took the same."""
    error = standard_error(result)
    return math.hypot(error, 1.25 * DRIFT / math.sqrt(result.repeats)) if error else 0.0
