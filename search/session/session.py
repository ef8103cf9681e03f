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
"""Returns what memory a mapping lacks as simulated, tensors included; None if memory is enough."""


def nothing(mapping: Mapping) -> Lack | None:
    """Return what a mapping lacks if memory has no limits: None."""
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
        """lack: returns what memory a mapping lacks. `ask` leaves out mappings that lack memory."""
        self.searcher = make_searcher(name, problem, seed=seed, stop=stop)
        self.ended: str | None = None  # why the last `ask` gave fewer mappings than it was asked for
        self.refused = Refusals()  # mappings that the searcher asked and that lack memory
        self._lack = lack

    @property
    def name(self) -> str:
        return self.searcher.name

    def ask(self, count: int = 1) -> list[Mapping]:
        """Return up to `count` new mappings. If the searcher has nothing left that fits into memory, there are fewer,
        and `ended` says why. The searcher is told that the mappings that lack memory failed.
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
        """How many mappings lacked memory, and how much the nearest one lacked, in words; "" if none did."""
        text = self.refused.text("not tried")
        return text and f"{self.name}: {text}."

    def tell(self, measured: Iterable[tuple[Mapping, Result]]) -> None:
        """Learn the results of measuring mappings, asked here or not."""
        for mapping, result in measured:
            self.searcher.tell(mapping, result)

    @property
    def notes(self) -> list[str]:
        """What a report should say about how this search went."""
        return self.searcher.notes

    def recalibrate(self, problem: Problem) -> None:
        """Go on with recalibrated costs, if the searcher uses costs.

        Raises BadInputError if more than the costs differ.
        """
        if self.searcher.predicts and problem is not self.searcher.problem:
            self.searcher.rebase(problem)

    def state(self, *, history: bool = True) -> dict[str, Any]:
        """Return the searcher's state as plain data that survives JSON; history: as in `Searcher.state`."""
        return self.searcher.state(history=history)

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from the `state()` of a session of the same problem with the same calibration: this session then asks
        what that session would have asked.

        Raises BadInputError if the state is another searcher's.
        """
        self.searcher.restore(state)
