"""Steps in turn: who drops out, and when all that is quoted is known."""

from __future__ import annotations

from itertools import count

import pytest

from placer.measure.in_turn import InTurn
from tests.clock import Clock
from tests.placer.measure.fake_steps import FakeStep, forever


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def in_turn(clock):
    return InTurn([], 1, clock)


def test_the_warm_up_is_not_counted(in_turn, clock):
    assert in_turn.seconds_of(FakeStep(clock, [9.0, 1.0, 2.0]), 2) == [1.0, 2.0]


def test_finalists_drop_out_by_halves_or_when_clearly_slower_and_the_kept_ones_never(in_turn, clock):
    noisy = lambda mean: (mean * (1 + 0.1 * (i % 5 - 2)) for i in count())  # noqa: E731
    steps = [FakeStep(clock, noisy(mean)) for mean in (1.04, 1.02, 1.5, 1.03, 1.0, 2.0)]
    found = in_turn.compare(steps, 40, fewest=10, kept=steps[-1:])
    assert [m.repeats for m in found] == [10, 25, 10, 10, 40, 40]  # halved after 10 turns, and again after 25
    assert [m.stopped_early for m in found] == [True, True, True, True, False, False]
    assert found[5].step_s == pytest.approx(2.0)


def test_finalists_that_hold_still_are_stepped_no_longer_than_it_takes_to_know_them(in_turn, clock):
    steps = [FakeStep(clock, forever(seconds)) for seconds in (1.0, 1.001)]
    assert [m.repeats for m in in_turn.compare(steps, 30, fewest=10)] == [10, 10]
    assert [m.repeats for m in in_turn.compare(steps, 30)] == [30, 30]


@pytest.mark.parametrize(("limit_s", "turns"), [(0.0, 5), (8.0, 5), (17.0, 8), (1000.0, 30)])
def test_no_turn_begins_after_the_limit_once_there_are_enough(in_turn, clock, limit_s, turns):
    """Two steps of a second each, with one to warm up: after n turns, 2 n + 2 seconds have passed."""
    counted = []
    steps = [FakeStep(clock, forever(1.0)) for _ in range(2)]
    found = in_turn.compare(steps, 30, limit_s=limit_s, after_turn=lambda: counted.append(clock.now_s))
    assert [(m.repeats, m.stopped_early) for m in found] == [(turns, False)] * 2
    assert len(counted) == turns
