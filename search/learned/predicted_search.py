"""The best placements by prediction: of all where these are few, else of what rounds of breeding and annealing find."""

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

AT_ONCE = 4096  # placements that are predicted together, at most
AT_ONCE_WORK = 20_000_000  # the ops and edges of them all: a fraction of a second between two looks at the clock
MOST_BUDGET = 1e15  # predictions, where time is all but endless
FEW_UNITS = 64  # of a problem with up to `enumerate` placements predicted whole; of twice the units, half as many


@dataclass(frozen=True)
class PredictedSettings:
    """How hard to look."""

    # Predictions of a round. Where nothing but the simulator judges, rounds double.
    work: int = 6_000_000  # predictions times the ops and edges of each
    doublings: int = 5  # rounds after which they double no more
    quicker: float = 3.0  # annealing moves per budgeted prediction, because most are not simulated whole
    load_quicker: float = 60.0  # the same for max-load
    last: float = 3.0  # one round takes all the time that is left where that suffices for fewer such rounds than this
    per_flip: int = 50  # at most so many predictions for each unit and device
    most: int = 8_000  # predictions of a round
    fewest: int = 640
    bred: float = 0.3  # share of a round that goes into variants of HEFT
    heft_predictions: int = 8  # a variant of HEFT takes as long as so many predictions
    hotter: float = 4.0  # every other round begins from all kinds of starts, and so much hotter
    enumerate: int = 65_536  # spaces of up to so many placements are predicted whole
    certify: int = 256  # units up to which branch and bound has a go, where nothing but the simulator judges
    certify_work: int = 200_000_000  # its ExactSettings.work
    certify_share: float = 1 / 3  # of the time that is left it takes at most this share,
    certify_s: float = 1.0  # or so many seconds where that is more
    pool: int = 256  # of the best placements so many are kept


class PredictedSearch:
    """Fills `elites` with the best predicted placements of a searcher's problem.

    It takes the searcher's time and draws from its generator, and counts its predictions there.
    """

    def __init__(self, searcher: Searcher, settings: PredictedSettings) -> None:
        self._searcher, self.settings = searcher, settings
        self.elites = Elites(settings.pool)
        self.starts: list[Placement] = []
        self.rounds = 0
        self.bound_s = 0.0  # that every placement is predicted to take at least
        self._certified = False  # whether branch and bound had its go
        self._per_s = 0.0  # of a round's budget, as fast as the last one went
        self._too_many = False  # placements to predict all of them in the time that is left

    @property
    def problem(self) -> Problem:
        """The searcher's, recalibrated as it is."""
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
        """The objective of each row, counted in the searcher's `evaluations`."""
        self._searcher.evaluations += len(rows)
        return self.problem.predict_many(rows)

    def predict_all(self) -> None:
        """Predict every placement there is; where the time that is left does not suffice, the space is not small."""
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
        if not whole:  # the beginning of the space is no sample of it
            self._too_many, self.elites.room = True, self.settings.pool
            return
        self.rounds = 1
        self.bound_s = self.elites.ranked()[0][0] if self.elites.value else 0.0

    def improve(self, trusted: bool) -> None:
        """One round; before the second one, branch and bound has a go. trusted: whether the simulator is the clock."""
        if trusted and self.rounds and not self._certified and len(self.problem.units) <= self.settings.certify:
            self._certify()
            self._certified = not self._searcher.stop()
        self._round(self._budget(doubled=trusted), trusted)

    def _certify(self) -> None:
        """Let branch and bound improve on the best, or prove a bound."""
        limits = ExactSettings(enumerate=0, work=self.settings.certify_work)
        seed, left_s = self._searcher.rng.getrandbits(32), self._left_s()
        until_s = (
            left_s - max(self.settings.certify_share * left_s, self.settings.certify_s) if left_s < math.inf else 0.0
        )
        # Its last part runs on one core, and may end with nothing: annealing gets the rest of the time.
        exact = Exact(
            self.problem, seed=seed, stop=lambda: self._searcher.stop() or self._left_s() < until_s, settings=limits
        )
        exact.ask()
        self._searcher.evaluations += exact.evaluations
        self.bound_s = max(self.bound_s, exact.bound())
        best = exact.ranking[: self.settings.pool]
        self.elites.add(np.array([p for _, p in best], np.int32), np.array([value for value, _ in best]))

    def _round(self, budget: int, trusted: bool) -> None:
        """As many predictions: variants of HEFT, then annealing from the best of all that is known."""
        rng = np.random.default_rng(self._searcher.rng.getrandbits(64))
        if self.rounds == 0:
            self._begin()
        whole, begin_s = budget, self._left_s()
        if self.problem.objective == "makespan":
            budget -= self._breed(int(budget * self.settings.bred), rng)
        self.rounds += 1
        if self._searcher.stop():  # moves of large graphs take seconds to make
            return
        self.moves.forget()
        explore = self.rounds % 2 == 0
        cooling = SIMULATOR_AS_CLOCK[self.problem.objective] if trusted else Cooling()
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
        """Breed variants of HEFT in the time of so many predictions; returns how many were spent."""
        rounds = predictions // self.settings.heft_predictions
        if rounds < 1 or self._searcher.stop():
            return 0
        found = breed(self.problem, self._first_variant, rounds=rounds, rng=rng, stop=self._searcher.stop)
        self._searcher.evaluations += rounds
        self.elites.add(np.array([p for _, p in found], np.int32), np.array([value for value, _ in found]))
        return rounds * self.settings.heft_predictions

    def _lines(self, explore: bool, cooling: Cooling) -> list[Placement]:
        """Where annealing begins: the best predicted and measured; with `explore`, mostly or only other starts."""
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
        """Predictions of the next round."""
        flips = self.problem.limits.feasible.size
        most = min(self.settings.most, self.settings.per_flip * flips, self.settings.work // self.problem.ops_and_edges)
        first = max(self.settings.fewest, most)
        if not doubled:
            return first
        wanted = first << min(self.rounds, self.settings.doublings)
        affordable = int(min(self._per_s * self._left_s(), MOST_BUDGET)) if self._per_s else 0
        return max(self.settings.fewest, affordable) if 0 < affordable < self.settings.last * wanted else wanted

    def _left_s(self) -> float:
        """Seconds that are left; infinite where nobody knows."""
        stop = self._searcher.stop
        return stop.left_s() if isinstance(stop, Deadline) else math.inf

    def rebase(self) -> None:
        """Predict the elites again, and the starts under the new costs; a small space is enumerated again."""
        for name in ("moves", "_first_variant"):  # of the old costs
            self.__dict__.pop(name, None)
        elites, self.elites, self.bound_s = self.elites.ranked(), Elites(self.settings.pool), 0.0
        if self.is_small():
            self.rounds = 0
        elif self.rounds:
            self._begin()
            rows = np.array([placement for _, placement in elites], np.int32)
            self.elites.add(rows, self.predict(rows))

    def remember(self) -> dict[str, Any]:
        """What `recall` goes on from, as plain data."""
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
        """Go on from what `remember` returned."""
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
