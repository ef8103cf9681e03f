"""The planners of a step, asked as one: one for the whole step, and one for each graph that a plan of splits gives."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from placer.result import Result
from placer.train.steps.modes import WHOLE
from search.online.interfaces import Answer, PlannerLike
from search.online.replan.proposal import OpDevices, Proposal

T = TypeVar("T")


class Planners:
    """The planners by number of the plan of splits. Calls that concern more than one graph go to all of them."""

    def __init__(self, whole: PlannerLike) -> None:
        self._by_plan = {WHOLE: whole}

    def __contains__(self, plan: int) -> bool:
        return plan in self._by_plan

    def __getitem__(self, plan: int) -> PlannerLike:
        return self._by_plan[plan]

    def add(self, plan: int, planner: PlannerLike) -> None:
        """Add the planner of the graph that plan of splits number `plan` gives."""
        self._by_plan[plan] = planner

    def keep(self, plans: Collection[int]) -> None:
        """End all planners except the whole step's and those of `plans`."""
        for plan in [plan for plan in self._by_plan if plan != WHOLE and plan not in plans]:
            self._by_plan.pop(plan).close()

    def close(self) -> None:
        """End all planners."""
        for planner in self._by_plan.values():
            planner.close()

    def singles(self) -> Future[list[Proposal]]:
        """Ask for the single devices of the whole step, even if ops are divided: parts on one device gain nothing."""
        return self._by_plan[WHOLE].singles()

    def tell(self, plan: int, measured: Sequence[tuple[OpDevices, Result]]) -> None:
        """Tell the planner of `plan` the results of mappings. If there is no such planner, the results are dropped."""
        if plan in self._by_plan:
            self._by_plan[plan].tell(measured)

    def predict(self, plan: int, devices: OpDevices) -> Future[float]:
        """Ask for the predicted seconds of a step; infinite if there is no planner for `plan`."""
        if plan in self._by_plan:
            return self._by_plan[plan].predict(devices)
        unknown: Future[float] = Future()
        unknown.set_result(float("inf"))
        return unknown

    def propose(self, count: int, seconds: float | None = None) -> Answer[list[Proposal]]:
        """Ask all planners for proposals; the answer has the `count` that are predicted best."""
        answers = [planner.propose(count, seconds) for planner in self._by_plan.values()]
        return _all(answers, lambda proposed: _best(proposed, count))

    def slowed(self, device_factor: Mapping[str, float], link_factor: Mapping[tuple[str, str], float]) -> None:
        """Tell all planners the load, as `PlannerLike.slowed`."""
        for planner in self._by_plan.values():
            planner.slowed(device_factor, link_factor)

    def only(self, names: Sequence[str]) -> Answer[None]:
        """Tell all planners the devices in use, as `PlannerLike.only`."""
        return _all([planner.only(names) for planner in self._by_plan.values()], lambda _: None)


@dataclass(frozen=True)
class JoinedAnswer(Generic[T]):
    """A value that is made of several answers, once all have arrived."""

    answers: Sequence[Answer[Any]]
    make: Callable[[list[Any]], T]

    def done(self) -> bool:
        """Whether all answers have arrived."""
        return all(answer.done() for answer in self.answers)

    def result(self, timeout: float | None = None) -> T:
        """Wait `timeout` seconds at most for each answer, and make the value. Raises the error that an answer holds."""
        return self.make([answer.result(timeout) for answer in self.answers])


def _all(answers: Sequence[Future[T]], make: Callable[[list[T]], T]) -> Answer[T]:
    """Return the only answer as it is, or several joined to one."""
    return answers[0] if len(answers) == 1 else JoinedAnswer(answers, make)


def _best(proposed: list[list[Proposal]], count: int) -> list[Proposal]:
    return sorted((p for some in proposed for p in some), key=lambda p: p.predicted_s)[:count]
