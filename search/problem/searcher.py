"""The base of every searcher: it proposes mappings (`ask`) and learns from results (`tell`)."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Mapping as MappingABC
from functools import cached_property
from itertools import count, islice
from typing import Any, ClassVar

from placer.errors import BadInputError, PlacerError
from placer.graph.mapping import Mapping
from placer.result import Failed, Measured, Result
from search.problem.memory_fit import fitted
from search.problem.problem import Placement, Problem

Stop = Callable[[], bool]
"""Whether time is up. A searcher calls this between predictions, and ends its work early if it returns True."""

PATIENCE = 4096  # an enumeration checks whether time is up after this many attempts to give a unit a device
MOST_LOOKS = 256  # the most such checks between two placements that fit, in a search without a deadline


class SearchExhausted(PlacerError):  # noqa: N818 - the end of a search is no error
    """The searcher has no mapping left to ask."""


def fastest(known_s: MappingABC[Placement, float], most: int) -> list[Placement]:
    """Return at most `most` of these placements, the fastest first; a tie is decided by the placements themselves."""
    return sorted(known_s, key=lambda p: (known_s[p], p))[:most]


def never() -> bool:
    """A `Stop` by which time is never up."""
    return False


class Deadline:
    """A `Stop` that knows how much time is left, so that a search can plan the rest of its time."""

    def __init__(self, seconds: float, clock: Callable[[], float], over: Stop = never) -> None:
        """Set the deadline `seconds` from now. over: whether to stop earlier."""
        self.until_s = clock() + seconds
        self.clock, self.over = clock, over

    def __call__(self) -> bool:
        return self.over() or self.left_s() <= 0

    def left_s(self) -> float:
        """Seconds until time is up; below 0 afterwards."""
        return self.until_s - self.clock()


class Searcher(ABC):
    """A searcher, which proposes mappings of one problem, none of them twice unless a repeat was requested.

    Subclasses implement `_propose`, save and load their own state in `_remember` and `_recall`, and drop predictions
    in `_rebase`. With the same problem, seed and results, a searcher asks the same mappings.
    """

    name: ClassVar[str]
    predicts: ClassVar[bool] = True  # whether the mappings it asks depend on predictions

    def __init__(self, problem: Problem, *, seed: int = 0, stop: Stop = never) -> None:
        self.problem = problem
        self.stop = stop
        self.rng = random.Random(seed)
        self.asked: dict[Placement, None] = {}
        self.told: dict[Placement, Result] = {}
        self.repeats: list[Placement] = []
        self.evaluations = 0
        self.given_bound_s = 0.0  # `lower_bound` of the problem if whoever began the search has computed it, else 0
        self.notes: list[str] = []  # notes for the report on how this search went

    @classmethod
    def prepare(cls, objective: str) -> None:
        """Compile the code that searches for this objective need, so that compiling takes none of their time."""
        return

    def ask(self) -> Mapping:
        """Return the next mapping to measure. Raises SearchExhausted if no mapping is left."""
        placement = self.repeats.pop(0) if self.repeats else self._propose()
        self.asked[placement] = None
        return self.problem.mapping(placement)

    def tell(self, mapping: Mapping, result: Result) -> None:
        """Learn the result of measuring `mapping`, asked or not. Of several results the last one counts."""
        placement = self.problem.placement(mapping)
        self.told.pop(placement, None)
        self.told[placement] = result

    def request_repeat(self, mapping: Mapping) -> None:
        """Let the searcher ask `mapping` once more, before any new mapping."""
        self.repeats.append(self.problem.placement(mapping))

    def state(self, *, history: bool = True) -> dict[str, Any]:
        """Return all state, including the random generator, as plain data that survives JSON.

        history=False leaves out the mappings that were asked and told, which grow in number. Then call `replay` with
        them first, and `restore` afterwards.
        """
        return {
            "searcher": self.name,
            **(self._history() if history else {}),
            "repeats": [list(placement) for placement in self.repeats],
            "rng": self.rng.getstate(),
            "evaluations": self.evaluations,
            "notes": self.notes,
            "memory": self._remember(),
        }

    def replay(self, measured: Iterable[tuple[Placement, Result]]) -> None:
        """Take over the history that a state lacks: the placements that were asked, and their results, in order."""
        for placement, result in measured:
            self.asked[placement] = None
            self.told.pop(placement, None)
            self.told[placement] = result

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`. Raises BadInputError if it is the state of another searcher."""
        if state["searcher"] != self.name:
            raise BadInputError(f"the state is of searcher {state['searcher']!r}; resume with that one.")
        if "asked" in state:
            self.asked = {tuple(placement): None for placement in state["asked"]}
            self.told = {tuple(placement): _result(plain) for placement, plain in state["told"]}
        self.repeats = [tuple(placement) for placement in state["repeats"]]
        version, words, gauss = state["rng"]
        self.rng.setstate((version, tuple(words), gauss))
        self.evaluations = state["evaluations"]
        self.notes = list(state.get("notes", ()))  # states stored by older versions have no notes
        self._recall(state["memory"])

    def _history(self) -> dict[str, Any]:
        return {
            "asked": [list(placement) for placement in self.asked],
            "told": [[list(placement), _plain(result)] for placement, result in self.told.items()],
        }

    def rebase(self, problem: Problem) -> None:
        """Go on with recalibrated costs. Asked and told mappings stay; predictions are made again.

        Raises BadInputError if `problem` does not have the same placements, see `Problem.check_same_space`.
        """
        self.problem.check_same_space(problem)
        self.problem, self.given_bound_s = problem, 0.0
        for cls in type(self).__mro__:
            for name, value in vars(cls).items():
                if isinstance(value, cached_property):  # computed from the problem
                    self.__dict__.pop(name, None)
        self._rebase()

    def withdraw(self) -> None:
        """Forget mappings that were asked but not told, so that they may be asked again."""
        self.asked = {placement: None for placement in self.asked if placement in self.told}

    def is_new(self, placement: Placement) -> bool:
        """Whether `placement` was neither asked nor told."""
        return placement not in self.asked and placement not in self.told

    def predict(self, placement: Placement) -> float:
        """Return the predicted objective in seconds, and count the prediction in `evaluations`."""
        self.evaluations += 1
        return self.problem.predict(placement)

    def incumbent(self) -> Placement | None:
        """Return the best placement measured so far, None before the first success."""
        measured = {p: r.step_s for p, r in self.told.items() if isinstance(r, Measured)}
        return next(iter(fastest(measured, 1)), None)

    def centre(self) -> Placement | None:
        """The incumbent to make moves around, changed as little as needed to fit: a measured single device fits as
        simulated, but need not by the estimate of tensors that limits moves. None before the first success.
        """
        best = self.incumbent()
        return None if best is None else fitted(self.problem, best)

    def first_new(self) -> Placement:
        """Return the lexicographically first new placement that fits.

        Raises SearchExhausted if none is left, or if none was found until `stop()` or, without a Deadline, within
        MOST_LOOKS times PATIENCE attempts.
        """
        known = len(self.asked.keys() | self.told.keys())
        is_timed = isinstance(self.stop, Deadline)
        looks = 0  # checks since the last placement that fits, counted only without a deadline

        def stop() -> bool:
            nonlocal looks
            looks += not is_timed
            return looks > MOST_LOOKS or self.stop()

        for placement in islice(fitting_placements(self.problem, stop), known + 1):
            looks = 0
            if self.is_new(placement):
                return placement
        if looks > MOST_LOOKS or self.stop():
            raise self.exhausted("no other mapping that fits into memory was found in time.")
        raise self.exhausted("every mapping that fits into memory was asked or told.")

    def bound(self) -> float:
        """A proven lower bound on the predicted objective of every mapping, in seconds; 0 if none is known."""
        return 0.0

    def exhausted(self, what: str) -> SearchExhausted:
        """Return the error to raise if no mapping is left to ask. what: the reason."""
        return SearchExhausted(f"searcher {self.name!r} has nothing left to ask: {what}")

    @abstractmethod
    def _propose(self) -> Placement:
        """Return a placement that is new and fits. Raises SearchExhausted if none is left."""

    def _rebase(self) -> None:  # noqa: B027 - most searchers keep no predictions
        """Drop or renew the predictions that a subclass keeps. Its cached properties are dropped already."""

    def _remember(self) -> Any:
        """Return a subclass's own state, as plain data."""
        return None

    def _recall(self, memory: Any) -> None:  # noqa: B027 - most searchers keep nothing
        """Load what `_remember` returned."""


def fitting_placements(problem: Problem, stop: Stop = never) -> Iterator[Placement]:
    """Yield every placement that fits into memory, in lexicographic order, until `stop()`. If memory is nearly full,
    finding the next one may take years.
    """
    free = list(problem.capacity_bytes)
    size, feasible = problem.unit_bytes, problem.feasible
    options = [iter(feasible[0])]
    chosen: list[int] = []
    patience = PATIENCE + 8 * len(size)  # with enough room the first placement takes one attempt per unit
    for attempt in count(1):
        if not options or (attempt % patience == 0 and stop()):
            return
        if len(chosen) == len(options):
            free[chosen.pop()] += size[len(chosen)]
        d = next(options[-1], None)
        if d is None:
            options.pop()
        elif size[len(chosen)] <= free[d]:
            free[d] -= size[len(chosen)]
            chosen.append(d)
            if len(chosen) == len(size):
                yield tuple(chosen)
            else:
                options.append(iter(feasible[len(chosen)]))


def _plain(result: Result) -> dict[str, Any]:
    if isinstance(result, Failed):
        return {"failed": [result.reason, result.detail]}
    fields = (result.step_s, result.spread_s, result.repeats, result.switch_s, result.stopped_early)
    return {"measured": list(fields)}


def _result(plain: dict[str, Any]) -> Result:
    return Failed(*plain["failed"]) if "failed" in plain else Measured(*plain["measured"])
