"""A simulated training that ended on the untouched step keeps it; a mapping takes over where its times change."""

import pytest

from placer.train.steps.modes import UNTOUCHED, Placed
from tests.search.online.simulated.machine import Machine
from tests.search.online.simulated.mappings import TOPOLOGY
from tests.search.online.simulated.training import Training, rejoined, settled


def ended_untouched(seed, **machine):
    """A training that ended on the untouched step, whose mappings take about 0.1 s a step."""
    training = Training(Machine(seed, competes=True, **{"untouched_s": 0.085, **machine})).until("steady").steps(60)
    assert training.mode is UNTOUCHED
    return training


@pytest.mark.some(1)
@pytest.mark.parametrize("noise", [{}, {"hang": 0.7}, {"drift": 0.2}, {"stragglers": 0.05}])
def test_an_untouched_step_that_stays_as_it_is_is_left_as_it_is(noise):
    for seed in range(4):
        training = ended_untouched(seed, **noise)
        begin = training.machine.step
        training.steps(5000)
        assert all(mode is UNTOUCHED for mode, _, _ in training.machine.ran[begin:])


def test_where_the_untouched_step_slows_down_a_mapping_takes_over_and_gives_way_when_it_is_fast_again():
    for seed in range(10):
        training = ended_untouched(seed)
        begin = training.machine.step
        training.machine.hosts.append((begin, begin + 400, 2.0))
        training.steps(200)
        assert isinstance(training.mode, Placed)
        assert training.true_s < 1.1 * training.machine.best_s()
        training.steps(200 + 1100)
        assert training.mode is UNTOUCHED


def test_where_a_load_on_the_devices_decided_for_the_untouched_step_a_mapping_takes_over_when_it_leaves():
    good = 0
    for seed in range(10):
        busy = {"loads": [(0, 400, (2.0, 2.0))], "hosts": [(0, 400, 0.6)]}
        training = ended_untouched(seed, untouched_s=0.15, **busy)
        assert training.machine.step < 400
        training.steps(700)
        good += isinstance(training.mode, Placed) and training.true_s < 1.1 * training.machine.best_s()
    assert good == 10


def test_everything_slowed_alike_is_no_reason_to_leave_the_untouched_step():
    for seed in range(10):
        training = ended_untouched(seed, understated=1.0, probe_noise=0.02)
        begin = training.machine.step
        training.machine.loads.append((begin, begin + 1000, (1.8, 1.8)))
        training.steps(300)
        ran = [mode for mode, _, _ in training.machine.ran[begin:]]
        assert training.mode is UNTOUCHED
        assert sum(mode is not UNTOUCHED for mode in ran) < 15


@pytest.mark.parametrize(
    ("seen", "left"), [({"understated": 1.0, "probe_noise": 0.02}, 80), ({"understated": 0.0, "probe_noise": 0.0}, 700)]
)
def test_where_all_devices_slow_alike_the_untouched_step_takes_over_and_gives_way_when_they_are_fast_again(seen, left):
    """Where probes see nothing of a load, they do not see it leave, either: the mapping is looked at after a while."""
    for seed in range(6):
        elsewhere = {"competes": True, "elsewhere": True, "untouched_s": 0.22, "stragglers": 0.0}
        training, _ = settled(seed, (3.0, 3.0), 400, **elsewhere, **seen)
        assert isinstance(training.mode, Placed)
        training.steps(60)
        assert training.mode is UNTOUCHED
        training.steps(340 + left)
        assert isinstance(training.mode, Placed)
        assert training.true_s < 1.1 * training.machine.best_s()


def test_a_mapping_that_a_load_makes_far_slower_is_waited_for_and_its_devices_are_not_left():
    elsewhere = {"competes": True, "elsewhere": True, "untouched_s": 0.15, "stragglers": 0.0, "understated": 1.0}
    training, _ = settled(0, (3.0, 3.0), 400, **elsewhere)
    before = len(training.said("left"))
    training.steps(60)
    assert training.mode is UNTOUCHED
    training.steps(500)
    assert isinstance(training.mode, Placed) and len(training.said("left")) == before


def test_all_devices_that_slow_alike_are_kept_where_the_untouched_step_is_no_faster():
    kept = {"competes": True, "elsewhere": True, "untouched_s": 0.5, "understated": 1.0, "probe_noise": 0.02}
    for seed in range(4):
        training, begin = settled(seed, (3.0, 3.0), 1000, **kept)
        mode = training.mode
        training.steps(400)
        assert training.mode is mode
        assert 1 <= sum(ran is UNTOUCHED for ran, _, _ in training.machine.ran[begin:]) <= 8
        assert "alike" in training.said("stayed")[0]


def test_a_load_on_this_process_that_comes_and_goes_is_followed_less_and_less():
    training = ended_untouched(0)
    begin, moves = training.machine.step, []
    for i in range(60):
        training.machine.hosts.append((begin + 40 * i, begin + 40 * i + 20, 2.0))
    for _ in range(3):
        before = training.moves
        training.steps(800)
        moves.append(training.moves - before)
    assert moves[2] <= max(2, moves[0])
    assert sum(moves) <= 20


def test_where_devices_come_back_an_untouched_step_stays_and_is_watched_on():
    training = ended_untouched(0)
    rejoined(training, ("worker:0",))
    training.steps(60)
    rejoined(training, TOPOLOGY.names)
    training.machine.mode = UNTOUCHED
    training.steps(60)
    training.machine.hosts.append((training.machine.step, training.machine.step + 1000, 3.0))
    training.steps(300)
    assert isinstance(training.mode, Placed)
