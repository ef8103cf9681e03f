"""The change test: silent while nothing lasting happens, quick when something does, whatever the unit of time."""

import math
import timeit

import numpy as np
import pytest

from placer.errors import PlacerError
from search.online.diagnose.change_detection import Change, ChangeSettings, ChangeTest, normal_scores, run_length

STEPS = 50_000
QUIET = 90  # steps after which the reference is full


def lognormal(chance, count, noise=0.04):
    return np.exp(chance.normal(0, noise, count))


def heavy_tailed(chance, count):
    return np.exp(0.04 * chance.standard_t(3, count))


def pareto(chance, count):
    return 1 + 0.1 * chance.pareto(2.5, count)


def bimodal(chance, count):
    return lognormal(chance, count, 0.03) * np.where(chance.random(count) < 0.2, 1.4, 1)


def hanging_together(chance, count, rho=0.3):
    """AR(1)."""
    steps = chance.normal(0, 0.04 * math.sqrt(1 - rho**2), count)
    for i in range(1, count):
        steps[i] += rho * steps[i - 1]
    return np.exp(steps)


def drifting(chance, count):
    """A third up over 400 steps, and down again."""
    return lognormal(chance, count, 0.03) * (1 + 0.33 * np.abs((np.arange(count) / 400) % 2 - 1))


def paused(chance, count):
    """After every 50th step there is a pause, and two slow steps follow."""
    return lognormal(chance, count) * np.where(np.arange(count) % 50 < 2, 3, 1)


def small_shifts(chance, count):
    """Beyond doubt for ranks, and too small to act on."""
    return lognormal(chance, count, 0.01) * np.where(np.arange(count) // 300 % 2, 1.05, 1)


def alarms(test, steps_s):
    """(index of the step, change) of every alarm."""
    return [(i, change) for i, step_s in enumerate(steps_s.tolist()) if (change := test.add(step_s))]


@pytest.mark.some(4)
@pytest.mark.parametrize(
    "kind",
    [lognormal, heavy_tailed, pareto, bimodal, hanging_together, drifting, paused, small_shifts],
    ids=lambda kind: kind.__name__,
)
def test_no_alarm_while_nothing_lasting_happens(kind):
    chance = np.random.default_rng(41)
    stragglers = np.where(chance.random(STEPS) < 0.005, 10, 1)
    assert alarms(ChangeTest(), kind(chance, STEPS) * stragglers) == []


@pytest.mark.parametrize("noise", [0.01, 0.05])
@pytest.mark.parametrize("grows", [100, 400, 2000])
def test_a_load_that_grows_slowly_is_told(noise, grows):
    late = []
    for seed in range(20):
        chance = np.random.default_rng(seed)
        steps_s = lognormal(chance, 200 + grows + 60, noise) * np.interp(
            np.arange(260 + grows), [200, 200 + grows], [1, 1.9]
        )
        told = alarms(ChangeTest(), steps_s)
        assert told and told[0][0] > 200 and all(change.slower for _, change in told)
        late.append(told[0][0] - (200 + grows))
    assert max(late) <= 30  # steps after it is whole


def test_steps_that_hang_together_strongly_alarm_less_for_the_spread_of_their_medians():
    steps_s = hanging_together(np.random.default_rng(42), 100_000, rho=0.8)
    without = alarms(ChangeTest(ChangeSettings(least_median_spreads=0)), steps_s)
    assert len(alarms(ChangeTest(), steps_s)) < 0.8 * len(without)


def delays(ratio, noise, chance, runs=200, stragglers=0.0):
    """Steps until a lasting change of that ratio was told, one for each run; no run may tell another."""
    found = []
    for _ in range(runs):
        at = int(chance.integers(QUIET, 300))
        steps_s = lognormal(chance, at + 40, noise) * np.where(chance.random(at + 40) < stragglers, 10, 1)
        steps_s[at:] *= ratio
        told = alarms(ChangeTest(), steps_s)
        assert len(told) <= 1
        if told:
            (index, change) = told[0]
            assert index >= at
            assert change.slower == (ratio > 1)
            assert change.ratio == pytest.approx(ratio, rel=0.25)
            found.append(index - at + 1)
    return found


@pytest.mark.some(4)
@pytest.mark.parametrize(("ratio", "within"), [(1.3, 8), (0.75, 8), (2.0, 6), (0.5, 6)])
@pytest.mark.parametrize("noise", [0.03, 0.05])
def test_lasting_changes_are_told_soon(ratio, within, noise):
    found = delays(ratio, noise, np.random.default_rng(7))
    assert len(found) == 200
    assert np.quantile(found, 0.5) <= 6
    assert np.quantile(found, 0.95) <= within


def test_stragglers_delay_but_rarely_hide_a_change():
    found = delays(1.3, 0.04, np.random.default_rng(8), stragglers=0.01)
    assert len(found) >= 196
    assert np.quantile(found, 0.95) <= 8


@pytest.mark.parametrize("ratio", [1.3, 0.7])
def test_a_change_within_the_warm_up_is_told_after_it(ratio):
    """reference  |----------------|
    load          0......at.......24   told soon after the warm-up and `part` steps."""
    chance, settings = np.random.default_rng(9), ChangeSettings()
    for at in range(10, settings.warm_up + 1):
        for _ in range(10):
            steps_s = lognormal(chance, 60)
            steps_s[at:] *= ratio
            ((index, change),) = alarms(ChangeTest(), steps_s)
            assert settings.warm_up - 1 <= index <= max(settings.warm_up, at) + settings.part + 4
            assert abs(change.steps - (index - at + 1)) <= 3
            assert change.slower == (ratio > 1)


def test_no_alarm_at_the_end_of_a_warm_up_where_nothing_changed():
    """The split alone: 2,000 warm-ups, some with a slow start."""
    chance = np.random.default_rng(10)
    for run in range(2000):
        steps_s = lognormal(chance, 40)
        steps_s[: run % 6] *= 2
        assert alarms(ChangeTest(), steps_s) == []


def test_a_load_that_comes_and_goes_is_told_twice():
    """step time  ____|~~~~~~|____  : up 2x at 100, down to half of that at 140."""
    steps_s = lognormal(np.random.default_rng(12), 240)
    steps_s[100:140] *= 2
    (_, up), (index, down) = alarms(ChangeTest(), steps_s)
    assert up.slower
    assert not down.slower
    assert down.ratio == pytest.approx(0.5, rel=0.1)
    assert 140 <= index < 152


def test_a_load_that_goes_away_while_the_new_reference_still_fills_is_told_twice():
    """Told at its sixth step, it lasts for 14: those since it began are known to be of the new kind."""
    steps_s = lognormal(np.random.default_rng(20), 160, 0.03)
    steps_s[100:114] *= 2
    assert [change.slower for _, change in alarms(ChangeTest(), steps_s)] == [True, False]


def test_a_change_says_when_it_began():
    chance = np.random.default_rng(13)
    for at in range(QUIET, QUIET + 50):
        steps_s = lognormal(chance, at + 20, 0.03)
        steps_s[at:] *= 1.5
        ((index, change),) = alarms(ChangeTest(), steps_s)
        assert abs(index + 1 - change.steps - at) <= 1


def test_after_a_change_the_reference_is_the_new_normal():
    test = ChangeTest()
    steps_s = lognormal(np.random.default_rng(14), 300)
    steps_s[200:] *= 3
    alarms(test, steps_s)
    assert test.reference_s == pytest.approx(3, rel=0.05)


def test_the_unit_of_time_does_not_matter():
    chance = np.random.default_rng(15)
    steps_s = heavy_tailed(chance, 3000) * np.repeat([1, 1.4, 0.8, 2, 1, 1.1], 500)
    told = alarms(ChangeTest(), steps_s)
    assert len(told) >= 4
    for factor in (2.0**-20, 2.0**9):  # powers of two, which round nothing
        assert alarms(ChangeTest(), steps_s * factor) == told


def test_ranks_alone_see_no_difference_between_a_time_and_any_monotone_function_of_it():
    """Without what it takes to be worth acting on, alarms fall on the same steps."""
    settings = ChangeSettings(least_ratio=0, least_spreads=-1e9, least_median_spreads=-1e9, part=10**6)
    steps_s = heavy_tailed(np.random.default_rng(16), 3000) * np.repeat([1, 1.1, 0.9, 1.2, 1, 1.3], 500)
    when = [index for index, _ in alarms(ChangeTest(settings), steps_s)]
    assert len(when) >= 4
    for monotone in (np.sqrt, lambda t: t**3, lambda t: 5 + np.log1p(t)):
        assert [index for index, _ in alarms(ChangeTest(settings), monotone(steps_s))] == when


def test_the_rank_part_alone_keeps_its_promised_run_length():
    """10^7 independent steps: alarms at most as often as the settings promise (sums as 10,000 walks side by side)."""
    settings, promised = ChangeSettings(), run_length(ChangeSettings().allowance, ChangeSettings().limit)
    assert promised >= 1e6
    chance, scores = np.random.default_rng(17), np.array(normal_scores(settings.window))
    up, down, alarms_seen = np.zeros(10_000), np.zeros(10_000), 0
    for _ in range(1000):
        score = scores[chance.integers(0, len(scores), len(up))]
        up = np.maximum(0, up + score - settings.allowance)
        down = np.maximum(0, down - score - settings.allowance)
        over = (up >= settings.limit) | (down >= settings.limit)
        alarms_seen += int(over.sum())
        up[over] = down[over] = 0
    assert alarms_seen <= 1e7 / promised


@pytest.mark.parametrize("size", [1, 2, 3, 24, 64])
def test_normal_scores_rise_and_are_symmetrical(size):
    scores = normal_scores(size)
    assert list(scores) == sorted(scores)
    assert scores == pytest.approx([-score for score in reversed(scores)], abs=1e-9)
    assert np.var(scores) <= 1


def test_equal_steps_are_no_change():
    assert alarms(ChangeTest(), np.full(500, 0.1)) == []


def test_equal_steps_that_all_become_slower_are_one():
    ((index, change),) = alarms(ChangeTest(), np.repeat([0.1, 0.2], 100))
    assert index == 105
    assert change == Change(ratio=2.0, steps=6, slower=True)


def test_restart_forgets():
    test = ChangeTest()
    assert test.reference_s is None
    alarms(test, np.full(100, 0.1))
    test.restart()
    assert test.reference_s is None
    assert alarms(test, np.full(100, 0.9)) == []
    assert test.reference_s == 0.9


@pytest.mark.parametrize("step_s", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_time_is_refused(step_s):
    with pytest.raises(PlacerError, match="add positive, finite seconds"):
        ChangeTest().add(step_s)


def test_memory_is_bounded():
    test = ChangeTest()
    alarms(test, lognormal(np.random.default_rng(18), 5000))
    assert len(test._latest(10**9)) == ChangeSettings().window + ChangeSettings().held


def test_adding_a_step_costs_next_to_nothing():
    test, steps_s = ChangeTest(), lognormal(np.random.default_rng(19), 20_000).tolist()
    each_s = timeit.timeit(lambda: [test.add(step_s) for step_s in steps_s], number=1) / len(steps_s)
    print(f"add: {each_s * 1e6:.1f} us")
    assert math.isfinite(each_s)
