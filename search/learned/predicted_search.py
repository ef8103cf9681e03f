"""The search for the best predicted placements: it predicts all if they are few, else it runs rounds of breeding and
annealing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search.exact.exact import Exact, ExactSettings
from search.initial.starts import starts
from search.list_scheduling.perturbed_heft import HeftVariant, breed
from search.local.anneal import SIMULATOR_AS_CLOCK, Cooling, Elites, anneal
from search.local.moves import Moves
from search.problem.problem import Placement, Problem
from search.problem.searcher import Deadline, Searcher, fitting_placements, never

Rows = NDArray[np.int32]

AT_ONCE = 4096  # the most placements that are predicted together
AT_ONCE_WORK = 20_000_000  # the most ops and edges of them all: a fraction of a second between two checks of the clock
MOST_BUDGET = 1e15  # the most predictions of a round, if time is practically endless
FEW_UNITS = 64  # with this many units up to `enumerate` placements are all predicted; with twice as many, up to half


@dataclass(frozen=True)
class PredictedSettings:
    """Settings of the work of a round."""

    # Predictions of a round. If only the simulator judges, the number doubles from round to round.
    work: int = 6_000_000  # predictions times the ops and edges of each
    doublings: int = 5  # the number of rounds that double
    quicker: float = 3.0  # annealing moves per budgeted prediction, because most moves are not simulated completely
    load_quicker: float = 60.0  # the same for max-load
    last: float = 12.0  # if the time left is enough for fewer rounds than this, one round takes all of it
    roomy: int = 10  # predictions per unit and device in the time left, from which two rounds halve it (makespan only)
    per_flip: int = 50  # the most predictions per unit and device
    most: int = 8_000  # bounds on the predictions of a round
    fewest: int = 640
    bred: float = 0.3  # share of a round that is spent on variants of HEFT
    heft_predictions: int = 8  # a variant of HEFT takes as long as this many predictions
    hotter: float = 4.0  # every other round explores: it begins from all kinds of starts, this many times hotter
    enumerate: int = 65_536  # all placements are predicted if there are at most this many, see FEW_UNITS
    certify: int = 256  # branch and bound runs if only the simulator judges and there are at most this many units
    certify_work: int = 200_000_000  # its ExactSettings.work
    certify_share: float = 1 / 3  # it takes at most this share of the time left,
    certify_s: float = 1.0  # or this many seconds if that is more,
    certify_trial: float = 0.1  # and after this share of that time it ends unless it closes the gap to the bound
    certify_pace: float = 0.5  # at this pace or faster, where 1 would just close all of it in time
    pool: int = 256  # how many of the best placements are kept


@dataclass
class _Pace:
    """How long branch and bound may run. Its last part runs on one core and may find nothing, so annealing gets the
    rest of the time, and all of it if the gap between bound and best value closes too slowly.
    """

    settings: PredictedSettings
    left_s: float  # seconds that are left; infinite without a deadline
    best_s: float
    begin_s: float  # the bound at the beginning; 0 as long as it is unknown

    def is_over(self, spent_s: float, bound_s: float) -> bool:
        """Whether time is up, or the pace too slow. spent_s: seconds so far. bound_s: the bound now."""
        if self.left_s == math.inf:
            return False
        self.begin_s = self.begin_s or bound_s
        share = spent_s / max(self.settings.certify_share * self.left_s, self.settings.certify_s)
        gap_s = self.best_s - self.begin_s
        is_slow = bound_s - self.begin_s < self.settings.certify_pace * share * gap_s < math.inf
        return share > 1 or (is_slow and share > self.settings.certify_trial)


class PredictedSearch:
    """A search that fills `elites` with the best predicted placements of a searcher's problem.

    It stops with the searcher, draws from the searcher's generator, and counts its predictions there.
    """

    def __init__(self, searcher: Searcher, settings: PredictedSettings) -> None:
        self._searcher, self.settings = searcher, settings
        self.elites = Elites(settings.pool)
        self.starts: list[Placement] = []
        self.rounds = 0
        self.bound_s = 0.0  # a lower bound of all predictions
        self._certified = False  # whether branch and bound has run
        self._per_s = 0.0  # budgeted predictions per second in the last round
        self._is_last = False  # whether the round is one of the last, which take all the time that is left
        self._halves = False  # whether it takes half of that, to explore
        self._too_many = False  # whether there are too many placements to predict all in the time left

    @property
    def problem(self) -> Problem:
        """Return the searcher's current problem."""
        return self._searcher.problem

    @cached_property
    def moves(self) -> Moves:
        return Moves(self.problem)

    @cached_property
    def _first_variant(self) -> HeftVariant:
        return HeftVariant.best(self.problem)

    def is_small(self) -> bool:
        """Whether every placement can be predicted."""
        return (
            not self._too_many and self.problem.space * len(self.problem.units) <= self.settings.enumerate * FEW_UNITS
        )

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        """Return the objective of each row, and count the rows in the searcher's `evaluations`."""
        self._searcher.evaluations += len(rows)
        return self.problem.predict_many(rows)

    def predict_all(self) -> None:
        """Predict every placement. If the time left is not enough, the space counts as not small from now on."""
        if self.rounds:
            return
        self.elites.room = self.settings.enumerate
        at_once = min(AT_ONCE, max(1, AT_ONCE_WORK // self.problem.ops_and_edges))
        every, whole, count, begin_s = fitting_placements(self.problem), False, 0, self._left_s()
        while not (self._searcher.stop() and self.elites.value):
            part = np.array(list(islice(every, at_once)), np.int32)
            if not len(part):
                whole = True
                break
            self.elites.add(part, self.predict(part))
            count += len(part)
            left_s = self._left_s()
            is_more = len(part) == at_once and self.problem.space > count
            if is_more and left_s < math.inf and (self.problem.space - count) * (begin_s - left_s) > left_s * count:
                self._too_many, self.elites.room = True, self.settings.pool
                return
        if not whole:  # the first placements of the space are not a fair sample of it
            self._too_many, self.elites.room = True, self.settings.pool
            return
        self.rounds = 1
        self.bound_s = self.elites.ranked()[0][0] if self.elites.value else 0.0

    def improve(self, trusted: bool) -> None:
        """Do one round. trusted: whether the simulator is the clock; if so, branch and bound runs before round 2."""
        if trusted and self.rounds and not self._certified and len(self.problem.units) <= self.settings.certify:
            self._certify()
            self._certified = not self._searcher.stop()
        self._round(self._budget(doubled=trusted), trusted)

    def _certify(self) -> None:
        """Let branch and bound improve on the best known, or prove a bound."""
        exact = Exact(
            self.problem,
            seed=self._searcher.rng.getrandbits(32),
            stop=lambda: self._searcher.stop() or pace.is_over(left_s - self._left_s(), exact.bound_s),
            settings=ExactSettings(enumerate=0, work=self.settings.certify_work),
            known=[placement for _, placement in self.elites.ranked()],
        )
        left_s, best_s = self._left_s(), self.elites.ranked()[0][0] if self.elites.value else math.inf
        pace = _Pace(self.settings, left_s, best_s, self._searcher.given_bound_s)
        exact.given_bound_s = self._searcher.given_bound_s
        exact.ask()
        self._searcher.evaluations += exact.evaluations
        self.bound_s = max(self.bound_s, exact.bound())
        best = exact.ranking[: self.settings.pool]
        self.elites.add(np.array([p for _, p in best], np.int32), np.array([value for value, _ in best]))

    def _round(self, budget: int, trusted: bool) -> None:
        """Spend `budget` predictions: on variants of HEFT, then on annealing from the best known placements."""
        rng = np.random.default_rng(self._searcher.rng.getrandbits(64))
        if self.rounds == 0:
            self._begin()
        whole, begin_s = budget, self._left_s()
        if self.problem.objective == "makespan":
            budget -= self._breed(int(budget * self.settings.bred), rng)
        self.rounds += 1
        if self._searcher.stop():  # making `moves` takes seconds for large graphs
            return
        self.moves.forget()
        cooling = SIMULATOR_AS_CLOCK[self.problem.objective] if trusted else Cooling()
        explore = self._explores()
        cooling = replace(cooling, hot=cooling.hot * self.settings.hotter) if explore else cooling
        lines = self._lines(explore, cooling)
        quicker = self.settings.quicker if self.problem.objective == "makespan" else self.settings.load_quicker
        self._searcher.evaluations += anneal(
            self.problem, self.moves, lines, self.elites, evaluations=int(budget * quicker), rng=rng,
            stop=self._searcher.stop, cooling=cooling,
        )  # fmt: skip
        self._per_s = whole / max(begin_s - self._left_s(), 1e-6) if begin_s < math.inf else 0.0

    def _begin(self) -> None:
        self.starts = starts(self.problem, self._searcher.stop)
        rows = np.array(self.starts, np.int32)
        self.elites.add(rows, self.predict(rows))

    def _breed(self, predictions: int, rng: np.random.Generator) -> int:
        """Breed variants of HEFT in the time of `predictions` predictions; return how many were spent."""
        rounds = predictions // self.settings.heft_predictions
        if rounds < 1 or self._searcher.stop():
            return 0
        found = breed(self.problem, self._first_variant, rounds=rounds, rng=rng, stop=self._searcher.stop)
        self._searcher.evaluations += rounds
        self.elites.add(np.array([p for _, p in found], np.int32), np.array([value for value, _ in found]))
        return rounds * self.settings.heft_predictions

    def _explores(self) -> bool:
        """Whether the round begins elsewhere and hotter. Every other one does, but for the makespan, of the last rounds
        only the one that takes half of the time.
        """
        if self._is_last and self.problem.objective == "makespan":
            return self._halves
        return self.rounds % 2 == 0

    def _lines(self, explore: bool, cooling: Cooling) -> list[Placement]:
        """Return the starts of annealing: the best predicted and measured placements; with `explore`, mostly others."""
        chains = cooling.chains
        if explore and cooling.afresh and self.starts:
            return self._searcher.rng.sample(self.starts, min(len(self.starts), chains))
        best = [placement for _, placement in self.elites.ranked()[:chains]]
        measured = self._searcher.centre()
        known = best[: chains // 4] + ([measured] if measured is not None else [])
        if not explore:
            return known or best or self.starts[:chains]
        others = self.starts + [placement for _, placement in self.elites.ranked()[chains:]]
        return known + (self._searcher.rng.sample(others, min(len(others), chains - len(known))) if others else [])

    def _budget(self, doubled: bool) -> int:
        """Return the number of predictions of the next round."""
        flips = self.problem.limits.feasible.size
        most = min(self.settings.most, self.settings.per_flip * flips, self.settings.work // self.problem.ops_and_edges)
        first = max(self.settings.fewest, most)
        self._is_last = False
        if not doubled:
            return first
        wanted = first << min(self.rounds, self.settings.doublings)
        affordable = int(min(self._per_s * self._left_s(), MOST_BUDGET)) if self._per_s else 0
        self._is_last = 0 < affordable < self.settings.last * wanted
        if not self._is_last:
            return wanted
        is_roomy = self.problem.objective == "makespan" and affordable >= self.settings.roomy * flips
        self._halves = is_roomy and not self._halves
        return max(self.settings.fewest, affordable // 2 if self._halves else affordable)

    def _left_s(self) -> float:
        """Seconds that are left; infinite without a Deadline."""
        stop = self._searcher.stop
        return stop.left_s() if isinstance(stop, Deadline) else math.inf

    def rebase(self) -> None:
        """Predict the elites and the starts again under the new costs. A small space is enumerated again."""
        for name in ("moves", "_first_variant"):  # drop those made with the old costs
            self.__dict__.pop(name, None)
        elites, self.elites, self.bound_s = self.elites.ranked(), Elites(self.settings.pool), 0.0
        if self.is_small():
            self.rounds = 0
        elif self.rounds:
            self._begin()
            rows = np.array([placement for _, placement in elites], np.int32)
            self.elites.add(rows, self.predict(rows))

    def remember(self) -> dict[str, Any]:
        """Return the state for `recall`, as plain data."""
        if self.is_small():
            return {"rounds": 0, "elites": [], "least": self.bound_s, "moves": None}
        return {
            "rounds": self.rounds,
            "elites": [[value, list(placement)] for value, placement in self.elites.ranked()],
            "least": self.bound_s,
            "certified": self._certified,
            "too_many": self._too_many,
            "moves": self.moves.share.tolist() if "moves" in self.__dict__ else None,
        }

    def recall(self, memory: dict[str, Any]) -> None:
        """Go on from the state that `remember` returned."""
        self.rounds, self.bound_s = memory["rounds"], memory["least"]
        self._too_many = memory.get("too_many", False)
        self._certified = memory.get("certified", self.rounds > 1)
        self.elites = Elites(self.settings.pool)
        for value, placement in memory["elites"]:
            self.elites.value[np.array(placement, np.int32).tobytes()] = value
        if self.rounds:
            self.starts = starts(self.problem, never)
        if memory["moves"] is not None:
            self.moves.share = np.array(memory["moves"])
