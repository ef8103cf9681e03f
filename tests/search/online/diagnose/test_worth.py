"""What a look may gain, and when it pays."""

from __future__ import annotations

import pytest

from search.online.diagnose.diagnosis import Diagnosis
from search.online.diagnose.worth import LookCost, most_gain


def found(**factors: float) -> Diagnosis:
    return Diagnosis("uneven", 1.0, {f"worker:{name[1:]}": f for name, f in factors.items()}, {}, "")


@pytest.mark.parametrize(
    ("factors", "step_ratio", "gain"),
    [
        ({"w0": 2.0}, 2.0, 0.5),
        ({"w0": 4.0}, 2.0, 0.5),  # no mapping is faster than steps were before
        ({"w0": 1.25}, 2.0, 0.2),  # nor gains more than is to be had from the device
        ({"w0": 0.5}, 1.0, 0.5),  # a device that became faster
        ({"w0": 2.0}, 1.02, 0.5),  # steps do not show it
        ({}, 2.0, 0.0),
    ],
)
def test_device_and_steps_bound_what_may_be_gained(factors: dict[str, float], step_ratio: float, gain: float) -> None:
    assert most_gain(found(**factors), step_ratio) == pytest.approx(gain)


def test_a_look_pays_where_steps_are_long_enough() -> None:
    cost = LookCost(trial_s=1.0)  # two seconds a look; half of 50 % of 1000 steps may be gained
    assert cost.may_pay(found(w0=2.0), 2.0, 0.009, 1000)
    assert not cost.may_pay(found(w0=2.0), 2.0, 0.007, 1000)


def test_what_looks_cost_is_learned_from_the_latest() -> None:
    cost = LookCost(trial_s=1.0)
    for _ in range(8):
        cost.took(0.2)
    assert cost.may_pay(found(w0=2.0), 2.0, 0.001, 1000)
    assert not LookCost(trial_s=1.0).may_pay(found(w0=2.0), 2.0, 0.001, 1000)
