"""What a look may gain, and when it pays."""

from __future__ import annotations

import pytest

from search.online.diagnose.diagnosis import Diagnosis
from search.online.diagnose.look_worth import LookCost, most_gain


def found(factor: float, step_ratio: float) -> Diagnosis:
    return Diagnosis("uneven", step_ratio, {"worker:0": factor}, {}, "")


@pytest.mark.parametrize(
    ("factor", "step_ratio", "gain"),
    [
        (2.0, 2.0, 0.5),
        (4.0, 2.0, 0.5),  # no mapping is faster than steps were before
        (1.21, 1.44, 1 - 1 / 1.32),  # short probes understate a load
        (0.5, 1.0, 0.5),  # a device that became faster
        (2.0, 1.02, 0.5),  # steps do not show it
        (1.0, 1.0, 0.0),
    ],
)
def test_device_and_steps_bound_what_may_be_gained(factor: float, step_ratio: float, gain: float) -> None:
    assert most_gain(found(factor, step_ratio)) == pytest.approx(gain)


def test_a_look_pays_where_steps_are_long_enough() -> None:
    cost = LookCost(trial_s=1.0)  # two seconds a look; half of 50 % of 1000 steps may be gained
    assert cost.may_pay(found(2.0, 2.0), 0.009, 1000)
    assert not cost.may_pay(found(2.0, 2.0), 0.007, 1000)


def test_what_looks_cost_is_learned_from_the_latest() -> None:
    cost = LookCost(trial_s=1.0)
    for _ in range(8):
        cost.took(0.2)
    assert cost.may_pay(found(2.0, 2.0), 0.001, 1000)
    assert not LookCost(trial_s=1.0).may_pay(found(2.0, 2.0), 0.001, 1000)


def test_a_dear_look_does_not_forbid_all_others() -> None:
    cost = LookCost(trial_s=0.1)
    cost.took(100.0)
    refused = 0
    while not cost.may_pay(found(2.0, 2.0), 0.01, 1000):
        cost.refused()
        refused += 1
    assert 1 <= refused <= 6
    cheap = LookCost(trial_s=1.0)
    for _ in range(10):
        cheap.took(0.1)
    for _ in range(3):
        cheap.refused()
    assert cheap.may_pay(found(2.0, 2.0), 0.001, 1000)


def test_the_first_look_is_taken_where_no_search_told_what_one_costs() -> None:
    assert LookCost(trial_s=0.0).may_pay(found(1.2, 1.2), 1e-6, 1000)
