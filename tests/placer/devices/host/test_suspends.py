"""A suspend is what moves two clocks apart, and nothing else does: no thread that is held up, no clock that is set."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from placer.devices.host.suspends import Suspends, duration


class Machine:
    """A machine whose time passes by hand. held_s: how long a thread is held up after each look at a clock."""

    def __init__(self) -> None:
        self.awake_s, self.asleep_s, self.held_s = 100.0, 7.0, 0.0

    def awake(self) -> float:
        now_s = self.awake_s
        self.awake_s += self.held_s
        return now_s

    def since_boot(self) -> float:
        return self.awake() + self.asleep_s


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_a_suspend_is_found_once_and_with_its_seconds(machine: Machine) -> None:
    suspends = Suspends(machine.awake, machine.since_boot)
    machine.awake_s += 50
    assert suspends.passed_s() == 0
    machine.asleep_s += 3600
    machine.awake_s += 1
    assert suspends.passed_s() == 3600
    assert suspends.passed_s() == 0
    machine.asleep_s += 2
    assert suspends.passed_s() == 2


@pytest.mark.parametrize("held_s", [(0, 9, 0, 9), (9, 0, 9, 0), (0, 0, 30, 30)])
def test_a_thread_that_is_held_up_between_two_clocks_finds_no_suspend(
    machine: Machine, held_s: tuple[float, ...]
) -> None:
    machine.held_s = held_s[0]
    suspends = Suspends(machine.awake, machine.since_boot)
    for seconds in held_s:
        machine.held_s = seconds
        assert suspends.passed_s() == 0


def test_the_clocks_of_this_machine_stay_together_while_it_is_awake() -> None:
    suspends = Suspends()
    assert [suspends.passed_s() for _ in range(1000)] == [0.0] * 1000


def test_step_times_are_taken_by_a_clock_that_nobody_sets() -> None:
    for clock in ("perf_counter", "monotonic"):
        assert not time.get_clock_info(clock).adjustable
        assert time.get_clock_info(clock).monotonic


def test_durations_read_well() -> None:
    said = [duration(seconds) for seconds in (0.26, 59, 60, 600, 3600, 36000)]
    assert said == ["0.3 s", "59.0 s", "1 min", "10 min", "1.0 h", "10.0 h"]
    assert all(a != b for a, b in pairwise(said))
