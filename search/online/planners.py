"""The planners of a step: of the whole one, and of those that plans of splits give; asked as one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from placer.result import Result
from placer.train.steps.modes import WHOLE
from search.online.interfaces import PlannerLike
from search.online.replan.proposal import OpDevices, Proposal

T = TypeVar("T")


class Planners:
    """Whatever is no matter of one graph goes to all; proposals are the best of all. Each answer is a Future."""

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

    def propose(self, count: int, seconds: float | None = None) -> Future[list[Proposal]]:
        """The best predicted of what all propose."""
        return _all([planner.propose(count, seconds) for planner in self._by_plan.values()], lambda f: _best(f, count))

    def slowed(self, device_factor: Mapping[str, float], link_factor: Mapping[tuple[str, str], float]) -> None:
        """As `PlannerLike.slowed`, to all."""
        for planner in self._by_plan.values():
            planner.slowed(device_factor, link_factor)

    def only(self, names: Sequence[str]) -> Future[None]:
        """As `PlannerLike.only`, to all."""
        return _all([planner.only(names) for planner in self._by_plan.values()], lambda _: None)


class _All(Future[Any]):
    """What is made of several answers, once all are there."""

    def __init__(self, parts: Sequence[Future[Any]], make: Callable[[list[Any]], Any]) -> None:
        super().__init__()
        self._parts, self._make = parts, make

    def done(self) -> bool:
        return all(part.done() for part in self._parts)

    def result(self, timeout: float | None = None) -> Any:
        return self._make([part.result(timeout) for part in self._parts])


def _all(parts: Sequence[Future[T]], make: Callable[[list[T]], Any]) -> Future[Any]:
    return parts[0] if len(parts) == 1 else _All(parts, make)


def _best(proposed: list[list[Proposal]], count: int) -> list[Proposal]:
    return sorted((p for some in proposed for p in some), key=lambda p: p.predicted_s)[:count]
