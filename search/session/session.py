"""A search session: one searcher that is asked, told, carried over to recalibrated costs, saved and resumed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from placer.graph.mapping import Mapping
from placer.result import Result
from search.problem.problem import Problem
from search.problem.searcher import SearchExhausted, Stop, never
from search.session.registry import make_searcher

BATCH = 4  # mappings that are asked for, and measured, together


class SearchSession:
    """Keeps one searcher alive over a whole search. Raises BadInputError for an unknown searcher."""

    def __init__(self, name: str, problem: Problem, *, seed: int = 0, stop: Stop = never) -> None:
        self.searcher = make_searcher(name, problem, seed=seed, stop=stop)
        self.ended: str | None = None  # why the last `ask` gave fewer than it was asked for

    @property
    def name(self) -> str:
        return self.searcher.name

    def ask(self, count: int = 1) -> list[Mapping]:
        """Up to `count` new mappings; fewer where the searcher has nothing left, and `ended` says why."""
        asked: list[Mapping] = []
        self.ended = None
        while len(asked) < count and self.ended is None:
            try:
                asked.append(self.searcher.ask())
            except SearchExhausted as end:
                self.ended = str(end)
        return asked

    def tell(self, measured: Iterable[tuple[Mapping, Result]]) -> None:
        """Learn the results of measuring mappings, asked here or not."""
        for mapping, result in measured:
            self.searcher.tell(mapping, result)

    @property
    def notes(self) -> list[str]:
        """What a report should say of the way this search went."""
        return self.searcher.notes

    def recalibrate(self, problem: Problem) -> None:
        """Go on with recalibrated costs, if the searcher uses costs.

        Raises BadInputError where more than the costs differ.
        """
        if self.searcher.predicts and problem is not self.searcher.problem:
            self.searcher.rebase(problem)

    def state(self, *, history: bool = True) -> dict[str, Any]:
        """The searcher's state as plain data that survives JSON, and its history, as `Searcher.state` has it."""
        return self.searcher.state(history=history)

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()`, in a session of the same problem with the same calibration: asks what that one would.

        Raises BadInputError where the state is another searcher's.
        """
        self.searcher.restore(state)
