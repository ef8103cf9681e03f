"""Mappings that were built before the load changed, with their predictions under the current load."""

from __future__ import annotations

import math
from concurrent.futures import Future

from placer.train.steps.modes import Placed
from search.online.interfaces import Steps
from search.online.planners import Planners
from search.online.trials.trials import Trials


class BuiltBefore:
    """Predictions of the mappings that are built: asked of the planner all at once, and awaited when needed."""

    def __init__(self, trials: Trials, planner: Planners) -> None:
        self.trials, self.planner = trials, planner
        self._asked: list[tuple[Placed, Future[float]]] = []
        self._predicted: dict[Placed, float] = {}

    def ask(self) -> None:
        """Ask for the current step time of each mapping that is built. Tell the planner the load before."""
        self._predicted = {}
        self._asked = [(built, self.planner.predict(built.plan, built.op_devices)) for built in self.trials.current]

    def best(self) -> Steps[tuple[Placed | None, float]]:
        """Return the best mapping that was not measured since, and its predicted seconds of a step; None and infinity
        if there is none. Raises PlacerError if the planner has ended.
        """
        while self._asked:
            built, future = self._asked.pop()
            self._predicted[built] = yield from self.trials.meanwhile(future)
        best = self._first([built for built in self._predicted if built not in self.trials.step_s])
        return best, math.inf if best is None else self._predicted[best]

    def best_single(self) -> tuple[Placed | None, float]:
        """Return the single device predicted fastest, measured or not, and its predicted seconds of a step. Call `best`
        before, which awaits the predictions.
        """
        single = self._first(self.trials.singles)
        return single, math.inf if single is None else self._of(single)

    def _first(self, built: list[Placed]) -> Placed | None:
        return min(built, key=self._of, default=None)

    def _of(self, built: Placed) -> float:
        return self._predicted.get(built, math.inf)
