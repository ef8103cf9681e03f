"""Probing costs a share of the training's time, whatever a step and a probe take."""

from __future__ import annotations

import pytest

from placer.devices.load.load_reading import LoadReading, Pair
from search.online.diagnose.probe_budget import CREDIT_S, RENEWED_S, SHARE, SLOWED_SHARE, MeteredProbes
from tests.clock import Clock


class SlowProbes:
    """Each probe takes as long as it is told, on a clock that only probes move."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds = clock, seconds

    def take(self) -> LoadReading:
        self.clock.now_s += self.seconds
        return LoadReading({}, {})

    def device(self, name: str) -> float:
        self.clock.now_s += self.seconds
        return self.seconds

    def link(self, pair: Pair) -> float:
        return self.device(pair[0])


@pytest.mark.parametrize("step_s", [1e-3, 0.1, 2.0])
@pytest.mark.parametrize("probe_s", [0.0, 0.02, 0.5])
def test_probing_takes_its_share_at_most(step_s: float, probe_s: float) -> None:
    clock = Clock()
    probes = MeteredProbes(SlowProbes(clock, probe_s), clock)
    steps = 5000
    taken = 0
    for i in range(steps):
        probes.stepped(step_s)
        if i % 10 == 0 and probes.may_spend:
            taken += 1
            (probes.take, lambda: probes.device("worker:0"), lambda: probes.link(("worker:0", "worker:1")))[
                i // 10 % 3
            ]()
    assert clock.now_s <= CREDIT_S + SHARE * steps * step_s + probe_s
    assert taken >= min(steps // 10, SHARE * steps * step_s / max(probe_s, 1e-9)) * 0.9


def test_what_was_lost_in_vain_is_paid_by_steps() -> None:
    clock = Clock()
    probes = MeteredProbes(SlowProbes(clock, 0.0), clock)
    probes.pay(CREDIT_S + 0.3)
    steps = 0
    while not probes.may_spend:
        probes.stepped(1e-3)
        steps += 1
    assert steps == pytest.approx(0.3 / SHARE / 1e-3, rel=0.01)


def test_a_slowdown_that_stays_allows_a_share_of_what_it_costs() -> None:
    clock = Clock()
    probes = MeteredProbes(SlowProbes(clock, 0.0), clock)
    probes.pay(CREDIT_S + 0.3)
    steps = 0
    while not probes.may_spend:
        probes.stepped(0.15, slowed=1.5)  # 0.1 s before, so each costs 0.05 s more
        steps += 1
    assert steps == pytest.approx(0.3 / (SHARE * 0.15 + SLOWED_SHARE * 0.05), abs=1)


def test_faster_steps_allow_no_less_than_usual_ones() -> None:
    clock = Clock()
    usual, faster = (MeteredProbes(SlowProbes(clock, 0.0), clock) for _ in range(2))
    for probes, slowed in ((usual, 1.0), (faster, 0.5)):
        probes.pay(CREDIT_S + 1e-3)
        probes.stepped(1e-3 / SHARE * 1.01, slowed)
    assert usual.may_spend and faster.may_spend


def test_a_clear_change_renews_the_credit_once_a_minute() -> None:
    clock = Clock()
    probes = MeteredProbes(SlowProbes(clock, 0.0), clock)
    probes.stepped(0.1)
    for seconds in (0.0, RENEWED_S - 1.0):  # in the first minute one renewal, then no other
        probes.pay(9.0)
        assert not probes.may_spend
        probes.renew()
        assert probes.may_spend == (seconds == 0.0)
        probes.stepped(seconds)
    probes.stepped(1.0)
    assert not probes.may_spend
    probes.renew()
    assert probes.may_spend


def test_a_renewal_adds_nothing_to_what_may_be_spent() -> None:
    clock = Clock()
    probes = MeteredProbes(SlowProbes(clock, 0.0), clock)
    probes.renew()
    probes.pay(1.1 * CREDIT_S)
    assert not probes.may_spend
    probes.renew()  # that before was none, because nothing had been spent
    assert probes.may_spend


def test_a_probe_that_fails_is_paid_for_too() -> None:
    clock = Clock()

    class Failing(SlowProbes):
        def take(self) -> LoadReading:
            super().take()
            raise RuntimeError

    probes = MeteredProbes(Failing(clock, 2 * CREDIT_S), clock)
    with pytest.raises(RuntimeError):
        probes.take()
    assert not probes.may_spend
