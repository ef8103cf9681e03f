"""The search of one cell: its next question, and the state from which a resumed search asks the same questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.campaign.cells import Cell
from experiments.campaign.open_case import OpenCase, Told
from experiments.campaign.rows import ERRORS
from placer.errors import BadInputError
from placer.graph.mapping import Mapping
from placer.result import Failed, Measured, Result, fastest_s
from search.defaults import BATCH
from search.exact.bounds import CLOSE
from search.problem.problem import Placement, Problem
from search.problem.searcher import Stop, never
from search.session.refusals import Refusals, too_large
from search.session.session import MOST_REFUSED, SearchSession

PROVEN = "the best mapping is proven: none can be predicted below it."


class CellSearch:
    """A search that asks for one placement after another.

    `state()` is taken between a result and the next question. So a search that was killed at any moment repeats its
    last question when it is resumed, and then goes on as if it had not been killed.
    """

    def __init__(
        self,
        cell: Cell,
        case: OpenCase,
        state: dict[str, Any] | None = None,
        asked: Told = (),
        over: Stop = never,
        carried: Sequence[Placement] = (),
        lacking: Sequence[Placement] = (),
    ) -> None:
        """state, asked: the saved state and the history of an earlier search of the same cell, to resume from.
        over: ends a question early; its answer must then not be used. carried: placements that the search asks for
        before its own; none of them is a single device. lacking: those in `asked` that were refused since the last
        measurement.
        """
        self.case = case
        self.ended: str | None = None
        self._lacking = list(lacking)
        self.calibration = case.calibrated(case.singles, None) if state is None else state.get("calibration")
        problem = case.problem(self.calibration)
        self._up = never
        self.session = SearchSession(cell.searcher, problem, seed=cell.seed, stop=lambda: over() or self._up())
        self.session.tell((problem.mapping(placement), result) for placement, result in case.singles)
        if state is None:
            for placement in carried:
                self.session.searcher.request_repeat(problem.mapping(placement))
        else:
            self._go_on(cell, problem, asked, state)

    def _go_on(self, cell: Cell, problem: Problem, asked: Told, state: dict[str, Any]) -> None:
        """Resume from what is stored. Raises BadInputError if that is not of this search: compiled code works on it."""
        if not all(_fits(placement, problem) for placement, _ in asked):
            raise BadInputError(f"what is stored of {cell.key} is of another graph; name another store.")
        try:
            self.session.searcher.replay(asked)
            self.session.restore(state["session"])
        except ERRORS as error:
            raise BadInputError(
                f"the search of {cell.key} cannot go on from what is stored of it ({type(error).__name__}: {error}); "
                "name another store."
            ) from error

    @property
    def told(self) -> Told:
        """All results, those of single devices first."""
        return list(self.session.searcher.told.items())

    @property
    def best_s(self) -> float:
        """Seconds of the best so far, single devices included; infinity if nothing ran."""
        return fastest_s(result for _, result in self.told)

    @property
    def finalist(self) -> Placement | None:
        """The fastest placement on several devices; None if none ran. A placement that took all its steps precedes any
        that was stopped early.
        """
        ran = [(r.stopped_early, r.step_s, p) for p, r in self.told if isinstance(r, Measured) and len(set(p)) > 1]
        return min(ran)[2] if ran else None

    def ask(self, up: Stop = never) -> Placement | None:
        """The next placement; None if nothing is left to ask, and then `ended` says why. up: ends the question early,
        with the best placement found by then.
        """
        self._up = up
        bound_s = max(self.case.bound_s, self.session.searcher.bound())
        if not self.case.clocked and self.best_s <= bound_s * (1 + CLOSE):
            self.ended = PROVEN
            return None
        if len(self._lacking) >= MOST_REFUSED:
            self.ended = self._none_fits()
            return None
        asked: list[Mapping] = self.session.ask(1)
        self.ended = self.session.ended
        return self.session.searcher.problem.placement(asked[0]) if asked else None

    def refusal(self, placement: Placement) -> Failed | None:
        """Why the placement is not to be measured, which is then told as its result; None if it is to be."""
        lack = self.case.lack(placement, self.calibration)
        return None if lack is None else too_large(lack)

    def _none_fits(self) -> str:
        """Why nothing more is asked for, after too many placements in a row that lack memory."""
        refused = Refusals()
        for placement in self._lacking:
            if lack := self.case.lack(placement, self.calibration):
                refused.add(lack)
        nearest = f"; of the nearest, {refused.nearest}" if refused.nearest else ""
        name, count = self.session.name, len(self._lacking)
        return f"searcher {name!r} asked {count} mappings in a row that lack memory, as simulated{nearest}."

    def tell(self, placement: Placement, result: Result, refused: bool = False) -> None:
        """Learn the result of the placement. In a measured case, correct the costs after every BATCH results if the
        searcher predicts. refused: whether the result is that of `refusal`.
        """
        self._lacking = [*self._lacking, placement] if refused else []
        problem = self.session.searcher.problem
        self.session.tell([(problem.mapping(placement), result)])
        if self.case.clocked and self.session.searcher.predicts and len(self.told) % BATCH == 0:
            self.calibration = self.case.calibrated(self.told, self.calibration)
            self.session.recalibrate(self.case.problem(self.calibration))

    def state(self) -> dict[str, Any]:
        """Plain data that survives JSON. Its size does not grow, because the history is left out: the caller has it."""
        return {"session": self.session.state(history=False), "calibration": self.calibration}


def _fits(placement: Placement, problem: Problem) -> bool:
    """Whether the placement has an existing device for each unit."""
    return len(placement) == len(problem.units) and all(0 <= d < len(problem.topology) for d in placement)
