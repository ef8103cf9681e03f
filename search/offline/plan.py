"""Planning: a search judged by the simulator alone, for as long as it may take."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from placer.graph.mapping import Mapping
from placer.result import Failed, Measured, Result
from search.exact.bounds import lower_bound
from search.list_scheduling.heft import heft_placement
from search.problem.memory_fit import packed
from search.problem.problem import Placement, Problem
from search.problem.searcher import Deadline, Stop, never
from search.session.registry import SEARCHERS
from search.session.session import SearchSession

DEFAULT_SEARCHER = "hybrid"
CLOSE = 1e-9  # share of the lower bound: a value this close to it cannot be improved


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
) -> Plan:
    """Ask, simulate, tell, until time is up, nothing is left to ask, or `over()`; never worse than a single device.

    The time that numba takes to compile, once on a machine, is not counted. Raises BadInputError for an unknown
    searcher, and where no mapping fits into memory, with what is missing.
    """
    problem.predict_many([heft_placement(problem)])
    if searcher_name in SEARCHERS:  # else the session refuses it
        SEARCHERS[searcher_name].prepare(problem.objective)
    start_s = clock()
    session = SearchSession(searcher_name, problem, seed=seed, stop=Deadline(seconds, clock, over))
    searcher = session.searcher
    singles = [(problem.predict(placement), placement) for placement in problem.singles()]
    value, best = min(singles) if singles else _any_fitting(problem)
    bound = lower_bound(problem)
    evaluations = max(1, len(singles))
    while value > bound * (1 + CLOSE) and (asked := session.ask()):
        value, best = min((value, best), *(_judged(session, mapping) for mapping in asked))
        bound = max(bound, searcher.bound())
        evaluations += 1
        if searcher.stop():
            break
    return Plan(
        mapping=problem.mapping(best),
        value=value,
        lower_bound=bound,
        best_single=min(singles)[0] if singles else None,
        searcher=searcher_name,
        evaluations=evaluations + searcher.evaluations,
        seconds=clock() - start_s,
        notes=tuple(session.notes),
    )


def _any_fitting(problem: Problem) -> tuple[float, Placement]:
    placement = packed(problem)
    return problem.predict(placement), placement


def _judged(session: SearchSession, mapping: Mapping) -> tuple[float, Placement]:
    """Predict a mapping and tell the searcher."""
    problem = session.searcher.problem
    placement = problem.placement(mapping)
    value = problem.predict(placement)
    result: Result = Failed("link", "a tensor would cross a link that is missing")
    if value < float("inf"):
        result = Measured(value)
    session.tell([(mapping, result)])
    return value, placement
