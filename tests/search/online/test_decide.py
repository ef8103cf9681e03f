"""Deciding: named culprits, moves that pay, and patience with neighbours who come and go."""

import math

import pytest

from placer.measurement import Measured
from search.online.decide import (
    Backoff,
    BackoffSettings,
    MoveSettings,
    diagnose,
    relative_spread,
    worth_moving,
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
    assert "moving gains nothing" in found.why


def test_devices_that_change_by_different_factors_are_not_alike():
    assert diagnose({"a": 1.5, "b": 3.0}, {}, 2).kind == "uneven"
    assert diagnose({"a": 1.5, "b": 1.5}, {("a", "b"): 4.0}, 2).kind == "uneven"


def test_a_lone_device_cannot_be_relieved():
    assert not diagnose({"a": 2.0}, {}, 2).may_gain


@pytest.mark.parametrize("devices", [{}, {"a": 1.14, "b": 0.88}, {"a": math.nan, "b": 1.0}, {"a": math.inf, "b": 1.0}])
def test_within_the_least_nothing_is_found(devices):
    found = diagnose(devices, {("a", "b"): 1.1}, 1.3)
    assert found.kind == "nothing"
    assert found.why == "steps take 1.30x as long, yet no device or link changed by 1.15x: going on"


def test_renaming_devices_renames_the_diagnosis():
    one = diagnose({"a": 1.0, "b": 2.0}, {("a", "b"): 5.0}, 1.5)
    other = diagnose({"b": 1.0, "a": 2.0}, {("b", "a"): 5.0}, 1.5)
    swap = str.maketrans("ab", "ba")
    assert {name.translate(swap): factor for name, factor in one.devices.items()} == other.devices
    assert {(a.translate(swap), b.translate(swap)): factor for (a, b), factor in one.links.items()} == other.links


def test_a_gain_that_pays_back_moves():
    verdict = worth_moving(0.1, 0.08, 0.01, 0.8, cause="load on worker:1 up 2.1x", groups=14)
    assert verdict.move
    assert verdict.gain == pytest.approx(0.2)
    assert verdict.pays_back_steps == 40
    assert verdict.why == (
        "load on worker:1 up 2.1x; moving 14 groups costs 0.8 s, gains 20.0%, pays back in 40 steps: moving."
    )


@pytest.mark.parametrize(
    ("then_s", "spread", "switch_s", "remaining", "says"),
    [
        (0.11, 0.0, 0.1, None, "moving loses 10.0%: staying."),
        (0.1, 0.0, 0.1, None, "moving gains nothing: staying."),
        (0.0988, 0.02 / 2 / math.sqrt(2), 0.1, None, "moving gains 1.2%, less than the noise of 2.0%: staying."),
        (0.098, 0.0, 0.01, None, "moving gains 2.0%, less than the 3.0% that make it worth while: staying."),
        (0.08, 0.0, 0.8, 39, "moving gains 20.0%, pays back in 40 steps, more than the 39 left: staying."),
        (
            0.08,
            0.0,
            20.0,
            None,
            "moving gains 20.0%, pays back in 1000 steps, later than the 500 looked ahead: staying.",
        ),
        (math.nan, 0.0, 0.1, None, "0.1 s against nan s a step for 0.1 s is no comparison: staying."),
        (0.08, math.nan, 0.1, None, "0.1 s against 0.08 s a step for 0.1 s is no comparison: staying."),
        (0.08, math.inf, 0.1, None, "moving gains 20.0%, less than the noise of inf%: staying."),
    ],
)
def test_what_does_not_pay_stays_and_says_why(then_s, spread, switch_s, remaining, says):
    verdict = worth_moving(0.1, then_s, spread, switch_s, remaining)
    assert not verdict.move
    assert verdict.why == says


def test_moving_there_and_back_is_never_worth_it_both_ways():
    """Hysteresis: of two mappings at most one is worth leaving for the other, whatever the noise."""
    for then_s in (0.05, 0.09, 0.097, 0.099, 0.1, 0.101, 0.103, 0.2):
        for spread in (0.0, 0.01, 0.1):
            there, back = worth_moving(0.1, then_s, spread, 0.1), worth_moving(then_s, 0.1, spread, 0.1)
            assert not (there.move and back.move)


def test_a_move_that_pays_within_the_steps_left_has_paid_by_then():
    for now_s, then_s, switch_s in ((0.1, 0.05, 1.0), (0.3, 0.29, 0.7), (1e-3, 9e-4, 0.04)):
        verdict = worth_moving(now_s, then_s, 0.0, switch_s, settings=MoveSettings(least_gain=0))
        assert verdict.move
        steps = verdict.pays_back_steps
        assert steps * then_s + switch_s <= steps * now_s * (1 + 1e-12)
        assert not worth_moving(now_s, then_s, 0.0, switch_s, steps - 1, MoveSettings(least_gain=0)).move


def test_costs_and_gains_only_ever_count_one_way():
    verdicts = [worth_moving(0.1, 0.1 - gain_s, 0.01, 0.5).move for gain_s in (0.001, 0.003, 0.005, 0.02, 0.05)]
    assert verdicts == sorted(verdicts)
    verdicts = [worth_moving(0.1, 0.08, 0.01, switch_s).move for switch_s in (0, 1, 9.9, 10.1, 100)]
    assert verdicts == [True, True, True, False, False]


def test_the_spread_of_medians_shrinks_with_repeats():
    """IQR 1.349 sigma, and a median of n has a standard deviation of 1.2533 sigma / sqrt(n)."""
    assert relative_spread(Measured(2.0, 0.1349, 25)) == pytest.approx(1.2533 * 0.1 / 5 / 2)
    assert relative_spread(Measured(1.0, 0.1, 100)) < relative_spread(Measured(1.0, 0.1, 4))
    one, other = Measured(1.0, 0.1, 9), Measured(1.0, 0.3, 9)
    assert relative_spread(one) < relative_spread(one, other) < relative_spread(other)
    assert relative_spread(one, Measured(1.0)) == math.inf  # a single step has an unknown spread


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
