"""The best mapping of a case, and its step as predicted, where what the case was made of can still be found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from experiments.campaign.cells import PREDICTED, Case
from experiments.campaign.predicted import PredictedCase
from experiments.campaign.store import Held, Store
from experiments.jobs.plan import timeline_of
from placer.errors import PlacerError
from placer.result import Measured
from search.problem.problem import Placement, Problem
from surrogate.simulate.timeline import Timeline

FILES = {"graphs": "the graph file", "topologies": "the topology file"}
TERMS = (*FILES, "objective", "schedule", "pins")  # what a problem depends on


class GoneError(PlacerError):
    """Why a case's best mapping cannot be shown."""


@dataclass(frozen=True)
class Best:
    """A case's problem, its best placement, and that of the best single device, where one can run it."""

    problem: Problem
    placement: Placement
    single: Placement | None

    @cached_property
    def after(self) -> Timeline:
        """The step, predicted."""
        return self._timeline(self.placement)

    @cached_property
    def before(self) -> Timeline | None:
        """The step on the best single device, predicted."""
        return None if self.single is None else self._timeline(self.single)

    def _timeline(self, placement: Placement) -> Timeline:
        problem = self.problem
        return timeline_of(problem.mapping(placement), problem.objective, problem.schedule)


def best_of(key: str, cells: Sequence[Held], cases: Mapping[str, Case], store: Store) -> Best:
    """The best mapping of a case. cells: of the case. cases: of the spec, by key. Raises GoneError."""
    singles = (store.opened(key) or {}).get("singles", [])
    alone = min(((step_s, name) for name, step_s in singles if step_s is not None), default=None)
    ran = [(t.result.step_s, t.placement) for held in cells for t in held.trials if isinstance(t.result, Measured)]
    if alone is None and not ran:
        raise GoneError("nothing ran yet")
    problem = problem_of(key, cells[0].kind, cases, store)
    single = None if alone is None else _all_on(problem, alone[1])
    if alone is not None and single is not None:
        ran.append((alone[0], single))
    best = min(ran)[1]
    if len(best) != len(problem.units) or not all(0 <= d < len(problem.topology) for d in best):
        raise GoneError("the stored mappings are of another graph")
    return Best(problem, best, single)


def _all_on(problem: Problem, name: str) -> Placement:
    if name not in problem.topology.names:
        raise GoneError(f"the topology has no {name} any more")
    return (problem.topology.names.index(name),) * len(problem.units)


def problem_of(key: str, kind: str, cases: Mapping[str, Case], store: Store) -> Problem:
    """What is searched in a case. Raises GoneError."""
    if kind != PREDICTED:
        raise GoneError(f"what a {kind} case places is not stored")
    if key not in cases:
        raise GoneError("its files are named by the campaign's spec, which has the case no more, or was not given")
    case = cases[key]
    differs = [found for found in case.differences(store.terms()[key]) if found[0] in TERMS]
    if differs:
        raise GoneError(_why_not(case, *differs[0]))
    try:
        return PredictedCase(case).problem(None)
    except PlacerError as error:
        raise GoneError(str(error).rstrip(".")) from None


def _why_not(case: Case, name: str, here: Any, there: Any) -> str:
    """How the spec's case is not the stored one."""
    if name not in FILES:
        return f"the spec's {name} is {here} now, and was {there}"
    path = case.folder / (case.what if name == "graphs" else case.where)
    return f"{FILES[name]} {path} " + ("cannot be read any more" if here is None else "has changed since")
