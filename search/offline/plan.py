"""Planning: a search judged by the simulator alone, for as long as it may take."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from placer.errors import PlacerError, short
from placer.graph.held_memory import Lack
from placer.graph.mapping import Mapping
from placer.result import Failed, Measured, Result
from search.exact.bounds import CLOSE, lower_bound
from search.list_scheduling.heft import heft_placement
from search.problem.memory_fit import packed, with_more_tensors
from search.problem.problem import Placement, Problem
from search.problem.searcher import Deadline, Stop, never
from search.session.refusals import NO_LINK, Refusals
from search.session.registry import SEARCHERS
from search.session.session import MOST_REFUSED, LackOf, SearchSession, nothing

DEFAULT_SEARCHER = "hybrid"


@dataclass(frozen=True)
class Plan:
    """The best mapping found by prediction."""

    mapping: Mapping
    value: float  # its objective, seconds
    lower_bound: float  # seconds that no mapping is predicted below
    best_single: float | None  # seconds on one device; None where none can run and hold everything
    searcher: str
    evaluations: int  # predictions made
    seconds: float  # that the search took
    notes: tuple[str, ...] = ()  # what the searcher has to say of how it went


def plan(
    problem: Problem,
    searcher_name: str = DEFAULT_SEARCHER,
    seconds: float = 10.0,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
    over: Stop = never,
    lack: LackOf = nothing,
) -> Plan:
    """Ask, simulate, tell, until time is up, nothing is left to ask, or `over()`; never worse than a single device.

    The time that numba takes to compile, once on a machine, is not counted. lack: what memory a mapping lacks; it is
    asked of mappings that are better than all before, because it takes longer than a prediction. Raises BadInputError
    for an unknown searcher, and where no mapping fits into memory, with what is missing; PlacerError where every
    mapping that was asked exceeds memory as simulated.
    """
    problem.predict_many([heft_placement(problem)])
    if searcher_name in SEARCHERS:  # else the session refuses it
        SEARCHERS[searcher_name].prepare(problem.objective)
    start_s = clock()
    stop = Deadline(seconds, clock, over)
    session = SearchSession(searcher_name, problem, seed=seed, stop=stop)
    best = _Best(problem, lack)
    singles = [best.judge(placement) for placement in problem.singles()]
    best_single = None if best.placement is None else best.value
    if best.placement is None:
        best.judge(packed(problem))
    bound = lower_bound(replace(problem, kept_bytes=None))  # an estimate, which proves nothing
    evaluations = max(1, len(singles))
    while best.value > bound * (1 + CLOSE) and (asked := session.ask()):
        session.tell([(mapping, best.judge(problem.placement(mapping))) for mapping in asked])
        bound = max(bound, 0.0 if problem.kept_bytes else session.searcher.bound())
        evaluations += 1
        if stop() and not best.is_to_be_found:
            break
        if best.problem is not session.searcher.problem:  # where more memory is left, another search begins
            evaluations += session.searcher.evaluations
            session = SearchSession(searcher_name, best.problem, seed=seed, stop=stop)
    return Plan(
        mapping=best.mapping(),
        value=best.value,
        lower_bound=bound,
        best_single=best_single,
        searcher=searcher_name,
        evaluations=evaluations + session.searcher.evaluations,
        seconds=clock() - start_s,
        notes=(*session.notes, *best.notes),
    )


class _Best:
    """The best placement so far that fits, and how much memory better ones lacked."""

    def __init__(self, problem: Problem, lack: LackOf) -> None:
        self.problem, self._lack = problem, lack
        self.value = inf
        self.placement: Placement | None = None
        self.refused = Refusals()

    def judge(self, placement: Placement) -> Result:
        """Predict a placement. One that is better than all before is kept, if memory suffices."""
        value = self.problem.predict(placement)
        if value == inf:
            return NO_LINK
        if self.placement is None or (value, placement) < (self.value, self.placement):
            lack = self._lack(self.problem.mapping(placement))
            if lack is not None:
                return self._refuse(placement, lack)
            self.value, self.placement = value, placement
        return Measured(value)

    def _refuse(self, placement: Placement, lack: Lack) -> Failed:
        self.problem = with_more_tensors(self.problem, placement, lack)
        return self.refused.add(lack)

    @property
    def is_to_be_found(self) -> bool:
        """Whether only memory has been in the way yet, so that a few more questions are worth more than the time."""
        return self.placement is None and 0 < self.refused.count < MOST_REFUSED

    @property
    def notes(self) -> list[str]:
        """What was left out for lack of memory."""
        text = self.refused.text("left out")
        return [f"{text}."] if text else []

    def mapping(self) -> Mapping:
        """The best mapping found. Raises PlacerError where all that were asked lack memory."""
        if self.placement is None and self.refused.nearest is not None:
            none_fits = self.refused.none_fits(short(self.problem.graph.name))
            raise PlacerError(f"{none_fits}: add a device, give them more memory, or search longer.")
        return self.problem.mapping(self.placement or packed(self.problem))
