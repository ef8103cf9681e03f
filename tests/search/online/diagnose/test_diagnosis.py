"""Deciding: named culprits, moves that pay, and patience with neighbours who come and go."""

import math

import pytest

from search.online.diagnose.diagnosis import (
    Backoff,
    BackoffSettings,
    diagnose,
    diagnose_by_steps,
)

LINK = ("worker:0", "worker:1")


def test_the_busy_device_is_named():
    found = diagnose({"worker:0": 1.02, "worker:1": 2.1}, {LINK: 1.8}, 1.6)
    assert found.may_gain
    assert found.devices == {"worker:1": 2.1}
    assert found.links == {}  # its slower end explains it
    assert found.why == "load on worker:1 up 2.1x"


def test_a_load_that_went_away_is_named():
    found = diagnose({"worker:0": 0.98, "worker:1": 0.5}, {LINK: 0.9}, 0.7)
    assert found.may_gain
    assert found.why == "load on worker:1 down 2.0x"


def test_what_ends_explain_is_no_news_of_the_link():
    assert diagnose({"a": 2.0, "b": 1.0}, {("a", "b"): 1.0}, 1.5).links == {}
    assert diagnose({"a": 0.5, "b": 1.0}, {("a", "b"): 0.6}, 0.8).links == {}
    assert diagnose({"a": 2.0, "b": 1.0}, {("a", "b"): 0.5}, 1.5).links == {("a", "b"): 0.5}


def test_a_slow_link_is_named_and_so_is_more_than_one_culprit():
    assert diagnose({"worker:0": 1, "worker:1": 1}, {LINK: 3}, 1.4).why == "link worker:0 <-> worker:1 3.0x slower"
    both = diagnose({"worker:0": 1.2, "worker:1": 1}, {LINK: 3}, 1.4)
    assert both.why == "load on worker:0 up 1.20x, link worker:0 <-> worker:1 2.5x slower"


@pytest.mark.parametrize("factor", [1.5, 0.6])
def test_where_all_devices_change_alike_moving_gains_nothing(factor):
    found = diagnose({"a": factor, "b": 1.05 * factor}, {("a", "b"): 1.0}, factor)
    assert found.kind == "alike"
    assert not found.may_gain
    assert "2 devices" in found.why and "alike" in found.why


def test_devices_that_change_by_different_factors_are_not_alike():
    assert diagnose({"a": 1.5, "b": 3.0}, {}, 2).kind == "uneven"
    assert diagnose({"a": 1.5, "b": 1.5}, {("a", "b"): 4.0}, 2).kind == "uneven"


def test_a_lone_device_cannot_be_relieved():
    found = diagnose({"a": 2.0}, {}, 2)
    assert not found.may_gain and found.why == "load on a up 2.0x, the only device"


def test_devices_of_which_some_are_unknown_did_not_change_alike():
    found = diagnose({"a": 2.0, "b": math.nan}, {}, 2)
    assert found.may_gain and found.why == "load on a up 2.0x"


def test_where_single_devices_that_are_known_did_not_slow_it_is_one_of_the_others():
    assert diagnose_by_steps({"a": 1.02, "b": math.nan}, 1.5).why == "load on b up 1.50x"
    assert diagnose_by_steps({"a": 1.02, "b": 0.99}, 1.5).kind == "nothing"
    assert diagnose_by_steps({"a": math.nan, "b": math.nan}, 1.5).kind == "nothing"


@pytest.mark.parametrize("devices", [{}, {"a": 1.14, "b": 0.88}, {"a": math.nan, "b": 1.0}, {"a": math.inf, "b": 1.0}])
def test_within_the_least_nothing_is_found(devices):
    found = diagnose(devices, {("a", "b"): 1.1}, 1.3)
    assert found.kind == "nothing"
    assert found.why == "steps take 1.30x as long, yet no device or link changed by 1.15x"


def test_renaming_devices_renames_the_diagnosis():
    one = diagnose({"a": 1.0, "b": 2.0}, {("a", "b"): 5.0}, 1.5)
    other = diagnose({"b": 1.0, "a": 2.0}, {("b", "a"): 5.0}, 1.5)
    swap = str.maketrans("ab", "ba")
    assert {name.translate(swap): factor for name, factor in one.devices.items()} == other.devices
    assert {(a.translate(swap), b.translate(swap)): factor for (a, b), factor in one.links.items()} == other.links


def test_the_first_alarm_is_due_at_once_and_there_is_nothing_to_do_without():
    assert not Backoff().due(7)
    assert Backoff().alarmed(7).due(7)


def test_waits_double_up_to_a_limit():
    backoff, step, waits = Backoff(BackoffSettings(first=10, most=60)), 0, []
    for _ in range(5):
        backoff = backoff.missed(step)
        waits.append(backoff.ready_step - step)
        step = backoff.ready_step
    assert waits == [10, 20, 40, 60, 60]


def test_an_alarm_within_a_wait_is_kept_until_its_end():
    backoff = Backoff().alarmed(100).missed(100).alarmed(110)
    assert not backoff.due(124)
    assert backoff.due(125)
    assert not Backoff().alarmed(100).missed(100).due(125)  # the old alarm was answered


def test_a_move_that_paid_for_itself_forgets_the_past():
    backoff = Backoff().missed(0).missed(25).missed(75).alarmed(200).moved(200, 40).alarmed(240)
    assert backoff == Backoff(pending=True)
    assert backoff.due(240)


def test_a_move_that_did_not_pay_was_for_nothing():
    backoff = Backoff().alarmed(200).moved(200, 40).alarmed(239)
    assert backoff.misses == 1
    assert not backoff.due(239 + 24)
    assert backoff.due(239 + 25)


def test_quiet_forgets_the_past():
    settings = BackoffSettings(first=10, most=60)
    missed = Backoff(settings).missed(0).missed(10)
    assert missed.alarmed(missed.ready_step + 59).misses == 2
    assert missed.alarmed(missed.ready_step + 60).misses == 0


def test_a_flapping_neighbour_moves_little():
    """The load changes every 20 steps, and each move would pay back in 40: log many moves in 10,000 steps."""
    backoff, moves = Backoff(), 0
    for step in range(0, 10_000, 5):
        if step % 20 == 0:
            backoff = backoff.alarmed(step)
        if backoff.due(step):
            backoff, moves = backoff.moved(step, 40), moves + 1
    assert 3 <= moves <= 12


def test_what_grows_on_is_due_at_once_whatever_was_tried() -> None:
    backoff = Backoff().alarmed(100).missed(100).at_once(110)
    assert backoff.due(110)
    assert Backoff().alarmed(100).moved(100, 40).at_once(120).due(120)


def test_what_was_put_off_waits_longer_each_time_and_the_next_alarm_does_not() -> None:
    settings = BackoffSettings(first=10, most=30)
    backoff, step = Backoff(settings).alarmed(0), 0
    for wait in (10, 20, 30, 30):
        backoff = backoff.postponed(step, pending=True)
        assert not backoff.due(step + wait - 1) and backoff.due(step + wait)
        step += wait
    assert backoff.alarmed(step - 5).due(step - 5)
    assert backoff.alarmed(step).postponed(step, pending=True).due(step + 10)
    assert backoff.missed(step) == Backoff(settings, 1, step + 10)
    assert not backoff.postponed(step, pending=False).due(10**6)
