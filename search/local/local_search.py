"""Local search: climb by prediction, measure the summits, then search around the best measured mapping."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from placer.result import Measured
from search.initial.expert import expert_placements
from search.initial.nearly_singles import nearly_singles
from search.list_scheduling.heft import heft_placement
from search.local.hill_climb import climb, kicked, moved, shift_count, some_shifts
from search.problem.memory_fit import packed
from search.problem.problem import Placement, Problem
from search.problem.searcher import Searcher, Stop, fitting_placements, never

RECENT = 200  # a new hill is compared with this many of the last mappings


@dataclass(frozen=True)
class LocalSettings:
    """Settings of the work before each ask."""

    work: int = 3_000_000  # predictions before the first ask, times the ops and edges that each prediction simulates
    pipeline_factor: int = 8  # how many times cheaper a prediction of the max-load objective is
    most_evaluations: int = 8_000  # bounds on the predictions that `work` allows
    fewest_evaluations: int = 200
    round_share: float = 0.25  # share of `work` for each later round, if that is enough to judge every move twice
    rounds: int = 4  # climbs per later ask
    enumerate: int = 4_096  # spaces of up to this many placements are ranked completely
    summits: int = 4  # asks of different hills before the neighbours of the best measured mapping are asked
    far: float = 1.25  # a mapping predicted this many times slower than the best is asked last
    structure: float = 0.05  # share of the units by which a new hill must differ
    material: float = 0.005  # share of all work that a move must shift to be worth a measurement


class Local(Searcher):
    """A searcher that first asks the best predicted summit, then summits that differ in structure, and then in turn
    neighbours of the best measured mapping and summits.
    """

    name: ClassVar[str] = "local"

    def __init__(
        self, problem: Problem, *, seed: int = 0, stop: Stop = never, settings: LocalSettings | None = None
    ) -> None:
        super().__init__(problem, seed=seed, stop=stop)
        self.settings = settings or LocalSettings()
        self.best: Placement | None = None
        self.best_value = float("inf")
        self.turn = 0
        self._ranking: list[Placement] = []

    def _propose(self) -> Placement:
        self.turn += 1
        placement = self._ranked() if self._is_small() else self._summit_or_neighbour()
        return placement or self._best_neighbour(material=0.0) or self.first_new()

    def _summit_or_neighbour(self) -> Placement | None:
        if self.best is None:
            return self._first_summit()
        if self.turn > self.settings.summits and self.turn % 3 and not self._predictions_hold():
            return self._best_neighbour(self.settings.material) or self._next_summit()
        return self._next_summit() or self._best_neighbour(self.settings.material)

    def _first_summit(self) -> Placement | None:
        """Climb from the best start, then from kicked copies of the summit, until the budget is spent."""
        budget = self._evaluations()
        self._climb(self._start(), budget // 2)
        until = self.evaluations + budget - budget // 2
        while self.evaluations < until and not self.stop():
            self._climb(kicked(self.problem, self._summit(), self.rng), until - self.evaluations)
        return self._summit() if self.is_new(self._summit()) else self._next_summit()

    def _next_summit(self) -> Placement | None:
        """Return a new summit that is better than all before, or differs in structure and is not far worse.

        None if none is found.
        """
        for _ in range(self.settings.rounds):
            if self.stop():
                return None
            before = self.best_value
            start = kicked(self.problem, self._hill(), self.rng)
            value, placement = self._climb(start, self._round_evaluations())
            if self.is_new(placement) and (value < before or self._is_other_hill(placement, value)):
                return placement
        return None

    def _best_neighbour(self, material: float) -> Placement | None:
        """Return the best-predicted new placement one move away from the best measured one.

        Moves that shift less than the share `material` of all work are left out.
        """
        centre = self.centre() or self.best
        if centre is None:
            return None
        weight = [min(row) for row in self.problem.unit_cost_s]
        least_s = material * sum(weight)
        best, best_value = None, float("inf")
        for spent, candidate in enumerate(self._neighbours(centre, weight, least_s)):
            value = self.predict(candidate)
            if best is None or value < best_value:
                best, best_value = candidate, value
            if spent >= self._evaluations() or self.stop():
                break
        return best

    def _neighbours(self, centre: Placement, weight: Sequence[float], least_s: float) -> Iterator[Placement]:
        for move in some_shifts(self.problem, self.rng):
            if self.stop():
                return
            if sum(weight[move.first : move.first + move.length]) >= least_s:
                near = moved(self.problem, centre, move)
                if near is not None and self.is_new(near):
                    yield near

    def _start(self) -> Placement:
        """Return the best predicted of HEFT, the expert's splits, single devices, and a greedy placement."""
        singles = [*self.problem.singles(), *nearly_singles(self.problem)]
        candidates = [heft_placement(self.problem), *singles, *expert_placements(self.problem)]
        best = self._best_of(list(dict.fromkeys(candidates)))
        if len(self.problem.units) * len(self.problem.topology) <= self._evaluations() // 4:
            best = self._best_of([best, self._greedy(next(self.problem.singles(), best))])
        return best

    def _greedy(self, start: Placement) -> Placement:
        """Move each unit, the heaviest first, to the device where the predicted objective is lowest."""
        placement = start
        cost_s = self.problem.unit_cost_s
        for u in sorted(range(len(cost_s)), key=lambda u: -min(cost_s[u])):
            flips = [(*placement[:u], d, *placement[u + 1 :]) for d in self.problem.feasible[u]]
            placement = self._best_of([flip for flip in flips if self.problem.fits(flip)])
        return placement

    def _best_of(self, placements: Sequence[Placement]) -> Placement:
        """Return the best predicted of the placements that there is time to predict, at least one."""
        best, best_value = placements[0], float("inf")
        for placement in placements:
            value = self.predict(placement)
            if value < best_value:
                best, best_value = placement, value
            if self.stop():
                break
        return best

    def _climb(self, start: Placement, evaluations: int) -> tuple[float, Placement]:
        end = climb(self.problem, start, self.predict, evaluations=evaluations, rng=self.rng, stop=self.stop)
        if self.best is None or end.value < self.best_value:
            self.best, self.best_value = end.placement, end.value
        return end.value, end.placement

    def _summit(self) -> Placement:
        """Return the best predicted placement so far; any that fits if there is none yet."""
        return self.best if self.best is not None else packed(self.problem)

    def _hill(self) -> Placement:
        """Return the start of the next kick: the best measured placement and the best predicted one in turn."""
        measured = self.centre()
        return self._summit() if measured is None or self.turn % 2 else measured

    def _is_other_hill(self, placement: Placement, value: float) -> bool:
        if value > self.settings.far * self.best_value:
            return False
        form = self.problem.canonical(placement)
        known = {self.problem.canonical(p) for p in [*self.told, *self.asked][-RECENT:]}
        least = max(1, self.settings.structure * len(form))
        return all(sum(a != b for a, b in zip(form, other, strict=True)) >= least for other in known)

    def _predictions_hold(self) -> bool:
        """Whether the best measured time equals its prediction, so that measuring neighbours would tell nothing new."""
        incumbent = self.incumbent()
        if incumbent is None:
            return True
        result = self.told[incumbent]
        return isinstance(result, Measured) and result.step_s == self.problem.predict(incumbent)

    def _is_small(self) -> bool:
        return self.problem.space <= min(self.settings.enumerate, self._evaluations())

    def _ranked(self) -> Placement | None:
        """Return the best predicted new placement of the whole space, except those there was no time to predict."""
        if not self._ranking:
            values = {}
            for placement in fitting_placements(self.problem):
                values[placement] = self.predict(placement)
                if self.stop():
                    break
            self._ranking = sorted(values, key=lambda p: (values[p], p))
        return next((placement for placement in self._ranking if self.is_new(placement)), None)

    def _evaluations(self) -> int:
        """Return the number of predictions before the first ask: fewer for larger graphs, which take longer."""
        factor = self.settings.pipeline_factor if self.problem.objective == "max-load" else 1
        wanted = self.settings.work * factor // self.problem.ops_and_edges
        return max(self.settings.fewest_evaluations, min(self.settings.most_evaluations, wanted))

    def _round_evaluations(self) -> int:
        all_twice = 2 * shift_count(self.problem)
        return min(self._evaluations(), max(int(self._evaluations() * self.settings.round_share), all_twice))

    def _rebase(self) -> None:
        """Climb again, because other costs have other summits."""
        self.best, self.best_value = None, float("inf")
        self._ranking = []

    def _remember(self) -> dict[str, Any]:
        best = None if self.best is None else [list(self.best), self.best_value]
        return {"best": best, "turn": self.turn}

    def _recall(self, memory: dict[str, Any]) -> None:
        self.turn = memory["turn"]
        self.best, self.best_value = None, float("inf")
        if memory["best"] is not None:
            self.best, self.best_value = tuple(memory["best"][0]), memory["best"][1]
