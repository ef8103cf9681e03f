"""Several planners are asked as one."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from placer.errors import PlacerError
from search.online.planners import Planners
from search.online.replan.proposal import Proposal


class Slow:
    """A planner that answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Future[Any]] = []

    def propose(self, count: int, seconds: float | None = None) -> Future[Any]:
        self.asked.append(Future())
        return self.asked[-1]


def proposals(*predicted_s: float) -> list[Proposal]:
    return [Proposal((0,), (), s, "some") for s in predicted_s]


def two() -> tuple[Planners, Slow, Slow]:
    first, second = Slow(), Slow()
    planners = Planners(first)  # type: ignore[arg-type]
    planners.add(1, second)  # type: ignore[arg-type]
    return planners, first, second


def test_the_best_of_all_are_there_once_all_have_answered() -> None:
    planners, first, second = two()
    found = planners.propose(3)
    second.asked[0].set_result(proposals(2.0, 4.0))
    assert not found.done()
    first.asked[0].set_result(proposals(1.0, 3.0))
    assert found.done()
    assert [p.predicted_s for p in found.result(0)] == [1.0, 2.0, 3.0]


def test_a_planner_that_fails_is_heard() -> None:
    planners, first, second = two()
    found = planners.propose(3)
    first.asked[0].set_exception(PlacerError("it is gone."))
    second.asked[0].set_result(proposals(1.0))
    with pytest.raises(PlacerError, match="gone"):
        found.result(0)
