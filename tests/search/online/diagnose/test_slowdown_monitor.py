"""What the monitor takes for the load of now, and whether probes say that it has gone."""

from __future__ import annotations

import math

import pytest

from placer.devices.load.load_reading import LoadReading, Pair
from search.online.diagnose.diagnosis import diagnose_by_steps
from search.online.diagnose.slowdown_monitor import SlowdownMonitor

PAIR = ("worker:0", "worker:1")
QUIET_S = 0.01


class Probes:
    """Each device's probe takes QUIET_S times its factor, and so does that of the link."""

    def __init__(self) -> None:
        self.factors = dict.fromkeys(PAIR, 1.0)
        self.link_factor = 1.0

    def take(self) -> LoadReading:
        return LoadReading({name: self.device(name) for name in PAIR}, {PAIR: self.link(PAIR)})

    def device(self, name: str) -> float:
        return QUIET_S * self.factors[name]

    def link(self, pair: Pair) -> float:
        return QUIET_S * self.link_factor


@pytest.fixture
def probes() -> Probes:
    return Probes()


def loaded(probes: Probes, step_ratio: float = 1.8) -> SlowdownMonitor:
    """A monitor that has acted on what the probes show, beside steps that slowed."""
    monitor = SlowdownMonitor(probes, [Probes().take()] * 3)
    readings = [probes.take()] * 3
    monitor.act_on(readings, monitor.diagnose(readings, step_ratio))
    return monitor


def felt(monitor: SlowdownMonitor, factor: float) -> None:
    """Act on what steps of single devices show: worker:1 is so many times slower, worker:0 is not."""
    found = diagnose_by_steps({"worker:0": 1.0, "worker:1": factor}, 1.8)
    monitor.act_on([monitor.take()] * 3, found)


def test_a_load_that_probes_see_has_eased_when_they_are_fast_again(probes: Probes) -> None:
    probes.factors["worker:1"] = 2.0
    monitor = loaded(probes)
    assert monitor.load.devices == {"worker:1": pytest.approx(2.0)} and monitor.is_slow
    assert not monitor.has_eased()
    probes.factors["worker:1"] = 1.1
    assert monitor.has_eased()


def test_that_no_move_solved_a_load_that_probes_see_does_not_end_the_watch_for_its_end(probes: Probes) -> None:
    probes.factors["worker:1"] = 2.0
    monitor = loaded(probes)
    felt(monitor, 1.7)  # steps still show it, as do the probes
    probes.factors["worker:1"] = 1.0
    assert monitor.has_eased()


def test_a_slow_link_has_eased_when_its_probe_is_fast_again(probes: Probes) -> None:
    probes.link_factor = 4.0
    monitor = loaded(probes)
    assert monitor.load.links == {PAIR: pytest.approx(4.0)} and not monitor.has_eased()
    probes.link_factor = 1.2
    assert monitor.has_eased()


def test_probes_are_not_asked_about_a_load_that_only_steps_show(probes: Probes) -> None:
    monitor = loaded(probes)
    felt(monitor, 1.7)
    assert monitor.load.devices == {"worker:1": pytest.approx(1.7)}
    assert not monitor.has_eased()
    felt(monitor, 1.5)  # since then
    assert monitor.load.devices == {"worker:1": pytest.approx(1.7 * 1.5)}


def test_a_second_look_takes_what_probes_show_now_and_forgets_nothing_where_they_show_none(probes: Probes) -> None:
    probes.factors["worker:1"] = 2.0
    monitor = loaded(probes)
    probes.factors["worker:1"] = 3.0
    monitor.look_again([monitor.take()] * 3)
    assert monitor.load.devices == {"worker:1": pytest.approx(3.0)}
    probes.factors["worker:1"] = 1.0
    monitor.look_again([monitor.take()] * 3)
    assert monitor.load.devices == {"worker:1": pytest.approx(3.0)}


def test_a_device_of_which_nothing_is_known_is_the_slow_one_where_the_others_are_not(probes: Probes) -> None:
    monitor = loaded(probes)
    felt(monitor, math.nan)
    assert set(monitor.load.devices) == {"worker:1"} and monitor.load.devices["worker:1"] > 1.1


@pytest.mark.parametrize(("factor", "grown"), [(2.0, False), (2.2, False), (2.4, True), (1.0, False)])
def test_a_load_has_grown_where_its_device_is_clearly_slower_than_when_it_was_acted_on(
    probes: Probes, factor: float, grown: bool
) -> None:
    probes.factors["worker:1"] = 2.0
    monitor = loaded(probes)
    probes.factors["worker:1"] = factor
    assert monitor.has_grown() is grown


def test_links_grow_too(probes: Probes) -> None:
    probes.link_factor = 4.0
    monitor = loaded(probes)
    assert not monitor.has_grown()
    probes.link_factor = 7.0
    assert monitor.has_grown()


def test_what_probes_do_not_see_cannot_be_seen_to_grow(probes: Probes) -> None:
    monitor = SlowdownMonitor(probes, [Probes().take()] * 3)
    felt(monitor, 2.0)
    probes.factors["worker:1"] = 3.0
    assert not monitor.has_grown()


def test_a_load_that_was_looked_at_in_vain_has_grown_only_if_it_is_worse_than_it_was_then(probes: Probes) -> None:
    monitor = SlowdownMonitor(probes, [Probes().take()] * 3)
    before = monitor.acted_on
    probes.factors["worker:1"] = 2.0
    readings = [probes.take()] * 3
    monitor.act_on(readings, monitor.diagnose(readings, 1.8))
    monitor.acted_on = before  # nothing was found
    assert monitor.is_slow and not monitor.has_grown()
    probes.factors["worker:1"] = 2.5
    assert monitor.has_grown()
    monitor.passed()
    assert not monitor.is_slow


def test_when_a_second_load_has_passed_the_first_is_left(probes: Probes) -> None:
    probes.factors["worker:0"] = 2.0
    monitor = loaded(probes)
    before = monitor.acted_on
    probes.factors["worker:1"] = 2.0
    readings = [probes.take()] * 3
    monitor.act_on(readings, monitor.diagnose(readings, 1.3))
    monitor.acted_on = before
    monitor.passed()
    assert set(monitor.load.devices) == {"worker:0"}


def test_a_load_that_readings_show_no_more_is_forgotten(probes: Probes) -> None:
    probes.factors["worker:1"] = 2.0
    monitor = loaded(probes)
    probes.factors["worker:1"] = 1.0
    monitor.take_load_from([probes.take()] * 3)
    assert not monitor.is_slow
