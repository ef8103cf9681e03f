"""A simulated training at rest: its devices are left, and joined again when a mapping may have come near."""

from itertools import pairwise
from types import SimpleNamespace

import pytest

from placer.phase_names import LOOKING_AGAIN, STEADY
from placer.train.steps.modes import UNTOUCHED, Placed
from search.online.phases.rest import Rest
from search.online.settings import OnlineSettings
from tests.search.online.simulated.machine import Machine
from tests.search.online.simulated.training import Training, away


def at_rest(seed=0, machine=(), **settings):
    """A training whose mappings take twice as long as the untouched step, or longer."""
    training = Training(Machine(seed, competes=True, **{"untouched_s": 0.05, **dict(machine)}), **settings)
    training.until("steady").steps(60)
    assert training.mode is UNTOUCHED
    return training


def test_where_no_mapping_comes_near_the_untouched_step_the_devices_are_left():
    for seed in range(4):
        training = at_rest(seed)
        machine = training.machine
        assert machine.is_away and len(training.said("left")) == 1
        assert training.controller.planner is None and training.controller.best_single_s is not None
        begin, probes = machine.step, machine.probes
        training.steps(5000)
        assert machine.probes == probes and training.said("joined") == []
        assert all(mode is UNTOUCHED for mode, _, _ in machine.ran[begin:])
        assert training.controller.unseen(5e-4) > 10


@pytest.mark.parametrize(
    ("machine", "settings"), [({"untouched_s": 0.085}, {}), ({}, {"dry_run": True}), ({}, {"beat_untouched": False})]
)
def test_devices_are_kept_where_a_mapping_is_near_or_they_are_wanted_all_the_same(machine, settings):
    training = Training(Machine(competes=True, **{"untouched_s": 0.05, **machine}), **settings)
    training.until("steady").steps(200)
    assert not training.machine.is_away and training.said("left") == []


def test_without_adapting_devices_that_lost_are_left_for_good():
    training = at_rest(machine={"untouched_s": 0.085}, adapt=False)
    training.machine.hosts.append((training.machine.step, 10**6, 9.0))
    training.steps(20_000)
    assert training.machine.is_away and training.said("joined") == []


def test_at_rest_a_step_as_slow_as_mappings_were_has_them_searched_anew():
    for seed in range(5):
        training = at_rest(seed)
        machine = training.machine
        begin = machine.step
        machine.hosts.append((begin, begin + 3000, 4.0))
        training.steps(700)
        assert isinstance(training.mode, Placed) and not machine.is_away
        assert training.true_s < 1.15 * machine.best_s()
        assert len(training.said("end")) == 2


def test_looks_that_bring_nothing_are_further_and_further_apart():
    """The whole machine slows down and recovers, so that a mapping stays as far off as it was."""
    training = at_rest()
    machine = training.machine
    begin = machine.step
    for i in range(100):
        slowed = begin + 500 * i, begin + 500 * i + 250
        machine.loads.append((*slowed, (3.0, 3.0)))
    joined = []
    for _ in range(4):
        before = len(training.said("joined"))
        training.steps(12_500)
        joined.append(len(training.said("joined")) - before)
    assert 1 <= joined[0] <= 6 and joined[3] <= 2 < sum(joined), joined
    assert all(mode is UNTOUCHED for mode, _, _ in machine.ran[-100:])
    assert machine.is_away and len(training.said("left")) == 1 + sum(joined)


def test_searches_after_which_the_training_rests_again_are_further_and_further_apart():
    """Something else slows this process, and is gone whenever mappings are searched."""
    training = at_rest()
    machine, calm = training.machine, 0
    for _ in range(20_000):
        calm = calm + 1 if training.controller.narrator.phase in (STEADY, LOOKING_AGAIN) else 0
        machine.hosts[:] = [(0, 10**6, 4.0)] if calm > 40 else []
        training.steps(1)
    ended = [entry.step for entry in training.journal.entries if entry.kind == "end"]
    apart = [later - one for one, later in pairwise(ended)]
    assert 2 <= len(apart) <= 8
    assert apart[-1] > 3 * apart[0]


def test_a_mapping_that_has_hardly_come_nearer_is_not_searched_for():
    """Few steps say so, and a search would find it as far off as before."""
    training = at_rest(machine={"noise": 0.01, "stragglers": 0.0})
    rest = training.controller._rest
    nearest_s = training.machine.mapping_s(rest.nearest.op_devices)
    training.machine.hosts.append((training.machine.step, 10**6, nearest_s / 1.43 / 0.05))
    training.steps(8000)
    assert training.said("joined") and len(training.said("end")) == 1
    assert training.machine.is_away


def test_devices_that_another_step_needs_are_left_once_it_no_longer_does():
    machine = Machine(competes=True, untouched_s=0.05)
    machine.needed = "another step of this program uses them"
    training = Training(machine).until("steady").steps(100)
    assert not machine.is_away
    assert len(training.said("left")) == 1 and machine.needed in training.said("left")[0]
    machine.needed = None
    training.steps(2)
    assert machine.is_away and len(training.said("left")) == 2


def test_whether_devices_can_be_left_is_asked_for_a_hundredth_of_the_time():
    """To find what a program holds that would be dropped takes a tenth of a second, and more."""
    machine, asked = Machine(competes=True, untouched_s=0.05), []
    machine.needed = "this program holds a lookup table"
    rest = machine.rest

    def slow():
        asked.append(machine.clock.now_s)
        machine.clock.now_s += 0.1
        return rest()

    machine.rest = slow
    training = Training(machine).until("steady").steps(1)
    begin = len(asked)
    training.steps(1000)  # at least 50 s
    assert 3 <= len(asked) - begin <= 12
    machine.needed = None
    training.steps(300)
    assert machine.is_away


def test_what_a_single_device_took_goes_with_the_pace_of_the_machine_and_is_forgotten_when_devices_are_lost():
    trials = at_rest().controller.trials
    known_s = trials.best_single_s
    trials.renew([2 * trials.step_s[UNTOUCHED]])
    assert trials.best_single_s == pytest.approx(2 * known_s)
    trials.start_anew(UNTOUCHED)
    assert trials.best_single_s is None


def test_devices_that_are_gone_at_rest_cost_a_line_and_are_tried_again_later():
    training = at_rest()
    machine = training.machine
    machine.gone = "the workers at far:2222 do not answer"
    begin = machine.step
    machine.hosts.append((begin, 10**6, 4.0))
    training.steps(1000)
    assert training.mode is UNTOUCHED and machine.is_away
    assert training.said("error") and all(machine.gone in line for line in training.said("error"))
    machine.gone = None
    training.steps(3000)
    assert isinstance(training.mode, Placed)


def test_a_look_while_a_device_is_missing_waits_for_it():
    training = at_rest()
    machine = training.machine
    machine.needed, machine.is_away = "another step of this program uses them", False
    machine.generation += 1
    machine.hosts.append((machine.step, 10**6, 4.0))
    away(machine, 1500)
    training.steps(1400)
    assert training.mode is UNTOUCHED and training.said("joined") == []
    training.steps(1000)
    assert isinstance(training.mode, Placed) and training.said("joined") and training.said("error") == []


def test_a_look_tries_the_nearest_mapping_in_its_run_order():
    machine, entered = Machine(competes=True), []

    def enter(proposals, settings):
        entered.extend(proposals)
        yield UNTOUCHED

    placed = machine.settle(machine.build((0, 1), (1, 0), "local"))
    trials = SimpleNamespace(
        step_s={UNTOUCHED: 0.05, placed: 0.2}, mode=UNTOUCHED, untouched_competes=True, live=machine, lost_s=0.0,
        enter=enter, background=lambda work: iter(()), built=[], fastest=lambda built: None,
    )  # fmt: skip
    narrator = SimpleNamespace(now=lambda phase: None, say=lambda kind, sentence: None)
    rest = Rest(trials, OnlineSettings(), narrator, lambda: None, machine.clock)
    rest.consider_latest()
    assert rest.is_due and list(rest._look()) == [UNTOUCHED]
    assert [(one.op_devices, one.order, one.searcher) for one in entered] == [((0, 1), (1, 0), "local")]
