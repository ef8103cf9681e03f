"""A search session: one searcher that is asked, told, carried over to recalibrated costs, saved and resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from placer.graph.held_memory import Lack
from placer.graph.mapping import Mapping
from placer.result import Result
from search.problem.problem import Problem
from search.problem.searcher import SearchExhausted, Stop, never
from search.session.refusals import Refusals
from search.session.registry import make_searcher

MOST_REFUSED = 24  # mappings in a row that lack memory, after which no more are asked for
LackOf = Callable[[Mapping], Lack | None]
"""What memory a mapping lacks as simulated, tensors included; None where it suffices."""


def nothing(mapping: Mapping) -> Lack | None:
    """What a mapping lacks where memory has no limits."""
    return None


class SearchSession:
    """Keeps one searcher alive over a whole search. Raises BadInputError for an unknown searcher."""

    def __init__(
        self,
        name: str,
        problem: Problem,
        *,
        seed: int = 0,
        stop: Stop = never,
        lack: LackOf = nothing,
    ) -> None:
        """lack: what memory a mapping lacks. Such mappings are not returned."""
        self.searcher = make_searcher(name, problem, seed=seed, stop=stop)
        self.ended: str | None = None  # why the last `ask` gave fewer than it was asked for
        self.refused = Refusals()  # mappings asked by the searcher that lack memory
        self._lack = lack

    @property
    def name(self) -> str:
        return self.searcher.name

    def ask(self, count: int = 1) -> list[Mapping]:
        """Up to `count` new mappings; fewer where the searcher has nothing left that fits into memory, and `ended` says
        why. The searcher is told what lacks memory, as a failure.
        """
        asked: list[Mapping] = []
        self.ended, in_a_row = None, 0
        while len(asked) < count and self.ended is None:
            try:
                mapping = self.searcher.ask()
            except SearchExhausted as end:
                self.ended = str(end)
                break
            lack = self._lack(mapping)
            if lack is None:
                asked.append(mapping)
                in_a_row = 0
                continue
            self.searcher.tell(mapping, self.refused.add(lack))
            in_a_row += 1
            if in_a_row == MOST_REFUSED:
                self.ended = f"searcher {self.name!r} asked {MOST_REFUSED} mappings in a row that lack memory."
        return asked

    @property
    def refusals(self) -> str:
        """How many mappings lacked memory, and how much the nearest one did; "" for none."""
        text = self.refused.text("not tried")
        return text and f"{self.name}: {text}."

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
