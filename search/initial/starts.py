"""The mappings from which searches start: those of known rules, the slow rules only while there is time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from math import log

from search.initial.expert import device_counts, expert_placements
from search.initial.nearly_singles import nearly_singles
from search.initial.parts import part_placements
from search.list_scheduling.cpop import cpop
from search.list_scheduling.donf import donf
from search.list_scheduling.etf import etf_placement
from search.list_scheduling.heft import heft
from search.list_scheduling.list_scheduler import repaired
from search.list_scheduling.peft import peft
from search.list_scheduling.perturbed_heft import HeftVariant, placed_by_variant, with_foresight
from search.problem.problem import Placement, Problem
from search.problem.searcher import Stop

# HEFT looks one op ahead: if links look slower than they are, fewer tensors cross.
LINK_FACTORS = (0.01, 0.3, 3.0, 10.0, 100.0)


def starts(problem: Problem, stop: Stop) -> list[Placement]:
    """Return placements by single devices (one of those that are alike), list schedulers, experts' splits, parts side
    by side, and HEFT with other links and on fewer devices.

    There are no duplicates, and at least one placement. After `stop()` only the quick placements, HEFT's and those made
    so far are returned. Raises BadInputError if no placement fits into memory.
    """
    found: dict[Placement, None] = dict.fromkeys((*problem.unlike_singles(), *nearly_singles(problem)))
    for rule in _rules(problem):
        for placement in rule():  # HEFT comes first, and is always added
            found[placement] = None
            if stop():
                return list(found)
    return list(found)


def _rules(problem: Problem) -> Iterator[Callable[[], Iterable[Placement]]]:
    first, *others = (lambda rule=rule: [repaired(problem, rule(problem))] for rule in (heft, donf, peft, cpop))
    yield first
    cuts = iter(_cuts(problem) if problem.objective == "max-load" else ())
    yield from islice(cuts, 1)  # early, because list schedulers do not know this objective
    if not problem.simulator.tables.ends_work:  # of which ETF knows nothing
        yield lambda: [etf_placement(problem)]
    yield from (lambda v=v: [placed_by_variant(problem, v)] for v in with_foresight(problem))
    yield from others
    yield lambda: expert_placements(problem)
    yield lambda: part_placements(problem)
    yield from cuts
    if problem.objective == "makespan":
        yield from (lambda k=k: [_heft_on(problem, k, 1.0)] for k in device_counts(len(problem.topology))[:0:-1])
        yield from (lambda f=f: [_heft_on(problem, len(problem.topology), f)] for f in LINK_FACTORS)


def _cuts(problem: Problem) -> Iterator[Callable[[], Iterable[Placement]]]:
    """Yield the rules of contiguous cuts, quick ones first."""
    from search.initial.contiguous import contiguous_placements, is_quick, rough_placements  # numba is slow to import

    if not is_quick(problem):
        yield lambda: rough_placements(problem)
    yield lambda: contiguous_placements(problem)


def _heft_on(problem: Problem, devices: int, factor: float) -> Placement:
    """Return HEFT's placement on the `devices` fastest devices with links that take `factor` times as long.

    A unit that can run on none of them may go to any device that can run it.
    """
    feasible = problem.limits.feasible.copy()
    feasible[:, list(problem.fastest_first[devices:])] = False
    nowhere = ~feasible.any(axis=1)
    feasible[nowhere] = problem.limits.feasible[nowhere]
    return placed_by_variant(problem, replace(HeftVariant.unperturbed(problem), link=log(factor)), feasible)
