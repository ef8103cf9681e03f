"""Planning: a search judged by the simulator alone, within a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from placer.errors import PlacerError, short
from placer.graph.held_memory import Lack
from placer.graph.mapping import Mapping
from placer.result import Measured, Result
from search.defaults import DEFAULT_SEARCHER
from search.exact.bounds import CLOSE, lower_bound
from search.list_scheduling.heft import heft_placement
from search.local.anneal import two_ops
from search.problem.memory_fit import packed, with_more_tensors
from search.problem.problem import Placement, Problem
from search.problem.searcher import Deadline, Stop, never
from search.session.refusals import NO_LINK, Refusals
from search.session.registry import SEARCHERS
from search.session.session import MOST_REFUSED, LackOf, SearchSession, nothing

# The most of the search's seconds that the lower bound may take, and the seconds that it may take even if that is more.
BOUND_SHARE, BOUND_S = 0.2, 1.0


@dataclass(frozen=True)
class Plan:
    """The best mapping found by prediction."""

    mapping: Mapping
    value: float  # its objective, seconds
    lower_bound: float  # seconds that no mapping is predicted below
    best_single: float | None  # seconds on one device; None if no device can run and hold everything
    searcher: str
    evaluations: int  # predictions made
    seconds: float  # that the search took
    notes: tuple[str, ...] = ()  # what the searcher says about how the search went


def plan(
    problem: Problem,
    searcher_name: str = DEFAULT_SEARCHER,
    seconds: float = 10.0,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
    over: Stop = never,
    lack: LackOf = nothing,
) -> Plan:
    """Ask, simulate and tell, until time is up, the bound is reached, nothing is left to ask, or `over()`.

    The result is never worse than a single device. The time that numba takes to compile, once on a machine, is not
    counted. lack: returns what memory a mapping lacks. It is called only for mappings that are better than all before,
    because it takes longer than a prediction. Raises BadInputError for an unknown searcher, if no mapping fits into
    memory (and says what is missing), and if under every mapping a tensor must cross a missing link. Raises PlacerError
    if every mapping that was asked exceeds memory as simulated, or has a tensor that crosses a missing link.
    """
    problem.predict_many([heft_placement(problem)])
    if searcher_name in SEARCHERS:  # else the session refuses it
        SEARCHERS[searcher_name].prepare(problem.objective)
    lower_bound(two_ops(problem.objective))
    start_s = clock()
    stop = Deadline(seconds, clock, over)
    search = _Search(problem, lambda roomier: SearchSession(searcher_name, roomier, seed=seed, stop=stop), lack)
    best_single = search.judge_singles()
    # By variables alone, because the bytes of kept tensors are an estimate, which proves nothing.
    bound_s = max(BOUND_SHARE * seconds, BOUND_S - (clock() - start_s))
    bound_stop = Deadline(bound_s, clock, over)
    bound = lower_bound(problem.of_variables, bound_stop)
    if problem.of_variables is problem and not bound_stop():  # else the searcher may find a larger one
        search.session.searcher.given_bound_s = bound
    while search.best.value > bound * (1 + CLOSE) and search.ask_and_tell():
        bound = max(bound, 0.0 if problem.kept_bytes else search.session.searcher.bound())
        if stop() and not search.only_lacks_memory:
            break
        search.leave_room()
    return Plan(
        mapping=search.mapping(),
        value=search.best.value,
        lower_bound=bound,
        best_single=best_single,
        searcher=searcher_name,
        evaluations=search.evaluations,
        seconds=clock() - start_s,
        notes=search.notes,
    )


class _Best:
    """The best placement so far that fits into memory."""

    def __init__(self, lack: LackOf) -> None:
        self._lack = lack
        self.value = inf
        self.placement: Placement | None = None

    def judge(self, problem: Problem, placement: Placement) -> Result | Lack:
        """Predict a placement, and keep it if it is better than all before. Returns the result, or what memory it lacks
        if it is better but does not fit.
        """
        value = problem.predict(placement)
        if value == inf:
            return NO_LINK
        if self.placement is None or (value, placement) < (self.value, self.placement):
            lack = self._lack(problem.mapping(placement))
            if lack is not None:
                return lack
            self.value, self.placement = value, placement
        return Measured(value)


class _Search:
    """Asks, judges and tells. If what was asked lacks memory, another search begins, which leaves more room."""

    def __init__(self, problem: Problem, begin: Callable[[Problem], SearchSession], lack: LackOf) -> None:
        self.problem, self._begin = problem, begin
        self.roomier = problem  # with larger estimates of tensors, after placements lacked memory
        self.session = begin(problem)
        self.best = _Best(lack)
        self.refused = Refusals()
        self._judged = 0  # singles, and what the searchers asked
        self._predicted = 0  # by searchers of earlier sessions

    def judge_singles(self) -> float | None:
        """Judge single devices, of alike ones only the first. Returns the seconds of the best; None if none can run and
        hold everything, and then another placement that fits is judged.
        """
        singles = self.problem.of_variables.unlike_singles()  # alike devices give the same seconds
        for placement in singles:
            if self.problem.fits(placement):
                self._judge(placement)
            else:  # it does not fit by the estimate of tensors, but may fit as simulated
                self.best.judge(self.problem, placement)
        self._judged = max(1, len(singles))
        if self.best.placement is not None:
            return self.best.value
        self._judge(packed(self.problem))
        return None

    def ask_and_tell(self) -> bool:
        """Judge what the searcher asks. Returns whether it asked anything."""
        asked = self.session.ask()
        self.session.tell([(mapping, self._judge(self.problem.placement(mapping))) for mapping in asked])
        self._judged += len(asked)
        return bool(asked)

    def _judge(self, placement: Placement) -> Result:
        judged = self.best.judge(self.problem, placement)
        if not isinstance(judged, Lack):
            return judged
        self.roomier = with_more_tensors(self.roomier, placement, judged)
        return self.refused.add(judged)

    def leave_room(self) -> None:
        """Begin another search, if this one leaves less room than it should."""
        if self.roomier is not self.session.searcher.problem:
            self._predicted += self.session.searcher.evaluations
            self.session = self._begin(self.roomier)

    @property
    def only_lacks_memory(self) -> bool:
        """Whether nothing has fitted into memory yet, and few mappings were refused, so that a few more questions are
        worth more than the time limit.
        """
        return self.best.placement is None and 0 < self.refused.count < MOST_REFUSED

    @property
    def evaluations(self) -> int:
        """Predictions made."""
        return self._judged + self._predicted + self.session.searcher.evaluations

    @property
    def notes(self) -> tuple[str, ...]:
        """What the searcher says, and what was left out for lack of memory."""
        text = self.refused.text("left out")
        return (*self.session.notes, *([f"{text}."] if text else []))

    def mapping(self) -> Mapping:
        """The best mapping found. Raises PlacerError if all that were asked lack memory, or a link, and BadInputError
        if every mapping lacks a link.
        """
        if self.best.placement is None and self.refused.nearest is not None:
            none_fits = self.refused.none_fits(short(self.problem.graph.name))
            raise PlacerError(f"{none_fits}: add a device, give them more memory, or search longer.")
        found = self.problem.mapping(self.best.placement or packed(self.roomier))
        if self.best.placement is None and _lacks_link(self.problem, found):  # otherwise costs are too large
            _refuse_lacking_link(self.problem)
            searcher = self.session.searcher.name
            other = "" if searcher == DEFAULT_SEARCHER else f"try --searcher {DEFAULT_SEARCHER}, "
            raise PlacerError(
                f"no mapping was found under which each tensor that crosses has a link: {other}search longer, or add "
                "links to the topology."
            )
        return found


def _lacks_link(problem: Problem, mapping: Mapping) -> bool:
    """Whether a tensor would cross a missing link; False if the objective needs no links."""
    ends = {(mapping.devices[edge.src], mapping.devices[edge.dst]) for edge in problem.graph.edges}
    return problem.objective == "makespan" and not all(_joined(problem, *pair) for pair in ends)


def _refuse_lacking_link(problem: Problem) -> None:
    """Raise BadInputError if an edge's ops can only run on devices that no link joins."""
    for edge in problem.graph.edges:
        here, there = (problem.feasible[problem.unit_of[op]] for op in (edge.src, edge.dst))
        if not any(_joined(problem, src, dst) for src in here for dst in there):
            problem.topology.link(here[0], there[0])  # which raises, and names the link


def _joined(problem: Problem, src: int, dst: int) -> bool:
    return src == dst or problem.topology.table[src][dst] is not None
