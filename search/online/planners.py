"""The planners of a step: of the whole one, and of those that plans of splits give; asked as one."""

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
    """Passes what does not concern one graph alone to every planner, and returns the best proposals of all."""

    def __init__(self, whole: PlannerLike) -> None:
        self._by_plan = {WHOLE: whole}

    def __contains__(self, plan: int) -> bool:
        return plan in self._by_plan

    def __getitem__(self, plan: int) -> PlannerLike:
        return self._by_plan[plan]

    def add(self, plan: int, planner: PlannerLike) -> None:
        """The planner of the graph that a plan of splits gives."""
        self._by_plan[plan] = planner

    def keep(self, plans: Collection[int]) -> None:
        """End the planners of other graphs than these and the whole step's."""
        for plan in [plan for plan in self._by_plan if plan != WHOLE and plan not in plans]:
            self._by_plan.pop(plan).close()

    def close(self) -> None:
        """End all."""
        for planner in self._by_plan.values():
            planner.close()

    def singles(self) -> Future[list[Proposal]]:
        """Of the whole step, whatever is divided: parts on one device gain nothing."""
        return self._by_plan[WHOLE].singles()

    def tell(self, plan: int, measured: Sequence[tuple[OpDevices, Result]]) -> None:
        """What mappings by a plan of splits came to; forgotten where there is no planner for it."""
        if plan in self._by_plan:
            self._by_plan[plan].tell(measured)

    def predict(self, plan: int, devices: OpDevices) -> Future[float]:
        """Seconds of a step; infinite where there is no planner for its plan of splits."""
        if plan in self._by_plan:
            return self._by_plan[plan].predict(devices)
        unknown: Future[float] = Future()
        unknown.set_result(float("inf"))
        return unknown

    def propose(self, count: int, seconds: float | None = None) -> Answer[list[Proposal]]:
        """The best predicted of what all propose."""
        answers = [planner.propose(count, seconds) for planner in self._by_plan.values()]
        return _all(answers, lambda proposed: _best(proposed, count))

    def slowed(self, device_factor: Mapping[str, float], link_factor: Mapping[tuple[str, str], float]) -> None:
        """As `PlannerLike.slowed`, to all."""
        for planner in self._by_plan.values():
            planner.slowed(device_factor, link_factor)

    def only(self, names: Sequence[str]) -> Answer[None]:
        """As `PlannerLike.only`, to all."""
        return _all([planner.only(names) for planner in self._by_plan.values()], lambda _: None)


@dataclass(frozen=True)
class JoinedAnswer(Generic[T]):
    """What is made of several answers, once all are there."""

    answers: Sequence[Answer[Any]]
    make: Callable[[list[Any]], T]

    def done(self) -> bool:
        """Whether all are there."""
        return all(answer.done() for answer in self.answers)

    def result(self, timeout: float | None = None) -> T:
        """Waits for each, `timeout` seconds at most, and makes what is asked for. Raises what one of them holds."""
        return self.make([answer.result(timeout) for answer in self.answers])


def _all(answers: Sequence[Future[T]], make: Callable[[list[T]], T]) -> Answer[T]:
    """The only answer as it is, or all together."""
    return answers[0] if len(answers) == 1 else JoinedAnswer(answers, make)


def _best(proposed: list[list[Proposal]], count: int) -> list[Proposal]:
    return sorted((p for some in proposed for p in some), key=lambda p: p.predicted_s)[:count]
