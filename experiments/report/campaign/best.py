"""The best mapping of a case and its predicted step, if the case's profile or files can still be found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

from experiments.campaign.cells import MEASURED, Case, beside
from experiments.campaign.measured.profiled import StoredProfile
from experiments.campaign.predicted import PredictedCase
from experiments.campaign.rows import ERRORS, lead
from experiments.campaign.store import PROFILE, CampaignStore, Held
from experiments.jobs.plan import timeline_of
from placer.errors import PlacerError
from placer.graph.coarsen import Groups
from placer.result import fastest_s
from search.problem.problem import Placement, Problem
from surrogate.simulate.timeline import Timeline

FILES = {"graphs": "the graph file", "topologies": "the topology file"}
TERMS = (*FILES, "objective", "schedule", "pins")  # what a problem depends on


class GoneError(PlacerError):
    """A case's best mapping cannot be shown; the message says why."""


@dataclass(frozen=True)
class Best:
    """A case's problem, its best placement, and the one on the best single device (None if no single device ran).

    groups: those that the problem places; None if it places ops.
    """

    problem: Problem
    placement: Placement
    single: Placement | None
    groups: Groups | None = None

    @cached_property
    def after(self) -> Timeline:
        """The predicted step with the best placement."""
        return self._timeline(self.placement)

    @cached_property
    def before(self) -> Timeline | None:
        """The predicted step on the best single device; None if there is none."""
        return None if self.single is None else self._timeline(self.single)

    def _timeline(self, placement: Placement) -> Timeline:
        problem = self.problem
        if problem.objective == "makespan":  # by the costs of the problem, which need not be those of its graph
            return problem.simulator.timeline(problem.devices(placement))
        return timeline_of(problem.mapping(placement), problem.objective, problem.schedule)


def best_of(key: str, cells: Sequence[Held], cases: Mapping[str, Case], store: CampaignStore) -> Best:
    """The best mapping of a case. cells: those of the case. cases: those of the spec, by key. Raises GoneError."""
    singles = (store.opened(key) or {}).get("singles", [])
    alone = min(((step_s, name) for name, step_s in singles if step_s is not None), default=None)
    ran = [(s, t.placement) for held in cells for t in held.trials if (s := fastest_s([t.result])) < inf]
    if alone is None and not ran:
        raise GoneError("nothing ran yet")
    problem, groups = searched(key, cells[0].kind, cases, store)
    single = None if alone is None else _all_on(problem, alone[1])
    if alone is not None and single is not None:
        ran.append((alone[0], single))
    best = _beside(problem, cells) or min(ran)[1]
    if len(best) != len(problem.units) or not all(0 <= d < len(problem.topology) for d in best):
        raise GoneError("the stored mappings are of another graph")
    return Best(problem, best, single, groups)


def _beside(problem: Problem, cells: Sequence[Held]) -> Placement | None:
    """The placement that is farthest ahead of the best single device, among those that were measured side by side with
    it; None if there are none.
    """
    finals = [held.final for held in cells if held.final and not held.lacks_final]
    if not finals:
        return None
    devices = max(finals, key=lambda final: lead(final["best_s"], final["best_single_s"])).get("devices", ())
    if len(devices) != len(problem.graph):
        raise GoneError("the stored mappings are of another graph")
    return tuple(devices[unit[0]] for unit in problem.units)


def _all_on(problem: Problem, name: str) -> Placement:
    if name not in problem.topology.names:
        raise GoneError(f"the topology has no {name} any more")
    return (problem.topology.names.index(name),) * len(problem.units)


def searched(key: str, kind: str, cases: Mapping[str, Case], store: CampaignStore) -> tuple[Problem, Groups | None]:
    """The problem of a case, and the groups that it places.

    A measured case has the problem as it was profiled and corrected by the single devices alone, before any mapping was
    measured. A case of files has the problem of its files, and no groups. Raises GoneError.
    """
    if kind == MEASURED:
        content = store.content(key, PROFILE)
        if content is None:
            raise GoneError("its model was not profiled yet")
        try:
            prediction = StoredProfile.decoded(content).calibrated((store.opened(key) or {}).get("calibration"))
        except (PlacerError, *ERRORS) as error:
            raise GoneError(f"what was profiled is damaged in the store ({error})") from None
        return prediction.problem, prediction.groups
    if key not in cases:
        raise GoneError("its files are named by the campaign's spec, which has the case no more, or was not given")
    case = cases[key]
    differs = [found for found in case.differences(store.terms()[key]) if found[0] in TERMS]
    if differs:
        raise GoneError(_why_not(case, *differs[0]))
    try:
        return PredictedCase(case).problem(None), None
    except PlacerError as error:
        raise GoneError(str(error).rstrip(".")) from None


def _why_not(case: Case, name: str, here: Any, there: Any) -> str:
    """A clause that says how the spec's case differs from the stored one."""
    if name not in FILES:
        return f"the spec's {name} is {here} now, and was {there}"
    path = beside(case.folder, case.what if name == "graphs" else case.where)
    return f"{FILES[name]} {path} " + ("cannot be read any more" if here is None else "has changed since")
