"""Deadlines: how much time is left, and a last round that takes all of it."""

import pytest

from search.exact.bounds import lower_bound
from search.learned.hybrid import Hybrid, HybridSettings
from search.offline import plan as planning
from search.offline.plan import plan
from search.problem.problem import Problem
from search.problem.searcher import Deadline
from tests.clock import Clock


def test_time_is_up_after_so_many_seconds_or_when_told():
    clock, told = Clock(), []
    deadline = Deadline(5.0, clock, lambda: bool(told))
    assert not deadline() and deadline.left_s() == 5.0
    clock.now_s = 4.9
    assert not deadline() and deadline.left_s() == pytest.approx(0.1)
    clock.now_s = 5.0
    assert deadline()
    told.append(True)
    assert Deadline(5.0, clock, lambda: bool(told))()


def test_a_round_takes_all_that_is_left_where_it_is_not_enough_for_several(build):
    problem = Problem(build.layered(3, layers=8), build.machine("gpu", "gpu", "cpu"))
    clock = Clock()
    settings = HybridSettings(enumerate=0, certify=0, roomy=10_000)
    searcher = Hybrid(problem, stop=Deadline(100.0, clock), settings=settings)
    wanted = searcher.search._budget(doubled=True)
    searcher.search._per_s = wanted / 5  # such a round takes five seconds
    assert searcher.search._budget(doubled=True) == wanted  # a hundred are left
    clock.now_s = 75.0
    assert searcher.search._budget(doubled=True) == pytest.approx(5 * wanted, rel=0.01)
    assert searcher.search._budget(doubled=False) == wanted  # before a real clock, rounds are alike


@pytest.mark.parametrize(
    ("objective", "roomy", "halves"), [("makespan", 10, True), ("makespan", 10_000, False), ("max-load", 10, False)]
)
def test_where_what_is_left_is_much_it_is_for_a_round_that_explores_and_one_that_does_not(
    objective, roomy, halves, build
):
    problem = Problem(build.layered(3, layers=8), build.machine("gpu", "gpu", "cpu"), objective)
    clock, settings = Clock(), HybridSettings(enumerate=0, certify=0, roomy=roomy)
    search = Hybrid(problem, stop=Deadline(100.0, clock), settings=settings).search
    search.rounds = 2
    wanted = search._budget(doubled=True)
    search._per_s = wanted / 5  # such a round takes five seconds
    search._budget(doubled=True)
    assert search._explores()  # a hundred are left, and every other round explores
    clock.now_s = 75.0
    assert search._budget(doubled=True) == pytest.approx((2.5 if halves else 5) * wanted, rel=0.01)
    assert search._explores() == (halves or objective == "max-load")  # whose every other round explores to the end
    search.rounds += 1
    clock.now_s = 87.5
    assert search._budget(doubled=True) == pytest.approx(2.5 * wanted, rel=0.01)
    assert not search._explores()


def test_a_plan_ends_when_its_time_is_up(build):
    problem = Problem(build.layered(4, layers=40, width=6), build.machine("gpu", "gpu", "cpu"))
    clock = Clock(tick_s=0.05)
    found = plan(problem, seconds=2.0, clock=clock)
    assert 2.0 <= found.seconds < 4.0
    assert found.value >= found.lower_bound


@pytest.mark.parametrize(("seconds", "most_s"), [(100.0, 20.0), (2.0, 1.0), (0.0, 1.0)])
def test_the_bound_leaves_most_of_the_time_to_the_search(towers, monkeypatch, seconds, most_s):
    left_s = []

    def bounding(problem, stop=None):
        if stop is None:  # it only compiles
            return 0.0
        left_s.append(stop.left_s())
        return lower_bound(problem, stop)

    monkeypatch.setattr(planning, "lower_bound", bounding)
    plan(towers, seconds=seconds, clock=Clock())
    assert left_s == [most_s]
