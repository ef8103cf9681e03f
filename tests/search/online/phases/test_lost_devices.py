"""Devices of a simulated training that are lost and come back, and workers that are joined anew."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from placer.train.steps.modes import UNTOUCHED, Placed
from search.online.phases.lost_devices import LostDevices
from search.online.phases.retry_later import MOST_REFUSED_SHARE
from tests.clock import Clock
from tests.search.online.simulated.machine import FakeStep, Machine
from tests.search.online.simulated.mappings import CALM, SINGLES, TOPOLOGY
from tests.search.online.simulated.training import SEEDS, Training, rejoined, settled, steps_until_good


def test_whether_a_device_was_lost_is_checked_once_a_second_where_steps_are_short():
    """Each check opens a connection to each worker."""
    clock, checked = Clock(), []
    session = SimpleNamespace(missing=(), suspect=lambda: checked.append(clock.now_s))
    lost = LostDevices(SimpleNamespace(session=session), 10, lambda *_: None, clock)
    for step in range(60_000):
        clock.now_s += 1e-3
        lost.check(step)
    assert 55 <= len(checked) <= 61


@pytest.mark.parametrize("left", [("worker:1",), ()])
def test_when_devices_are_back_the_mapping_of_before_runs_again(left):
    training = Training(Machine()).until("steady").steps(60)
    before = training.mode.op_devices
    rejoined(training, left)
    training.steps(100)
    assert training.controller.narrator.phase == "steady"
    rejoined(training, TOPOLOGY.names)
    training.steps(60)
    assert training.mode.op_devices == before
    assert "worker:0, worker:1 are there" in training.said("back")[-1]


def test_after_a_loss_the_untouched_step_runs_where_it_is_the_faster_one_and_is_watched():
    """Two devices take 0.1 s a step, and the one that is left 0.19 s."""
    for seed in range(4):
        machine = Machine(seed, competes=True, untouched_s=0.14, probe_noise=0.02)
        training = Training(machine).until("steady").steps(60)
        before = training.mode.op_devices
        rejoined(training, ("worker:0",))
        training.steps(100)
        assert training.mode is UNTOUCHED
        machine.hosts.append((machine.step, machine.step + 300, 3.0))
        training.steps(200)
        assert training.mode.op_devices == SINGLES[0]
        training.steps(100)
        rejoined(training, TOPOLOGY.names)
        training.steps(60)
        assert training.mode.op_devices == before


def test_after_a_loss_a_device_that_slows_down_gives_way_to_the_untouched_step():
    seen = {"understated": 1.0, "probe_noise": 0.02}
    training = Training(Machine(competes=True, elsewhere=True, untouched_s=0.3, **seen)).until("steady").steps(60)
    rejoined(training, ("worker:0",))
    training.steps(100)
    assert training.mode.op_devices == SINGLES[0]
    training.machine.loads.append((training.machine.step, 10**6, (3.0, 3.0)))
    training.steps(100)
    assert training.mode is UNTOUCHED


def rejoining(training, refused=None):
    """worker:1 is back; a look at what the program holds takes 0.1 s, joining takes 2 s. Returns when it was tried."""
    machine, session, tried = training.machine, training.machine.session, []
    session.missing, session.back = ("worker:1",), lambda: session.missing

    def rejoin():
        tried.append(machine.clock.now_s)
        machine.clock.now_s += 0.1
        if refused is None:
            machine.clock.now_s += 2.0
            session.missing = ()
        return refused

    session.rejoin = rejoin
    return tried


def test_a_device_that_must_not_be_joined_again_is_named_once_and_tried_seldom_and_others_are_looked_for():
    training = Training(Machine()).until("steady")
    session, begin_s = training.machine.session, training.machine.clock.now_s
    tried = rejoining(training, "this program holds a table")
    session.suspected = False
    training.steps(100)
    assert session.suspected
    training.steps(2900)
    assert training.said("lost") == [
        "worker:1 came back, but is not joined: this program holds a table. Searches that begin now wait for it."
    ]
    assert 2 <= len(tried) <= MOST_REFUSED_SHARE * (training.machine.clock.now_s - begin_s) / 0.1 + 1
    rejoining(training, "this program holds a queue")
    training.steps(3000)
    assert len(training.said("lost")) == 2


def test_a_device_that_is_given_up_is_named_once_with_the_reason():
    training = Training(Machine()).until("steady")
    rejoined(training, ("worker:0",))
    training.until("steady").machine.session.given_up = {"worker:1": "no memory is left."}
    training.steps(300)
    (said,) = training.said("lost")
    assert said.startswith("worker:1 is given up: its worker cannot be started (no memory is left). What was")


def joining_anew(training, refused=None):
    """The workers keep much of what was tried; joining them anew takes 2 s, and a refusal 0.1 s. Returns when it was
    tried.
    """
    machine, session, tried = training.machine, training.machine.session, []
    session.keeps_much = True

    def join_anew():
        tried.append(machine.clock.now_s)
        machine.clock.now_s += 0.1 if refused else 2.0
        session.keeps_much = refused is not None
        if refused is None:
            machine.generation += 1
            session.generation = machine.generation
            before = training.mode
            if isinstance(before, Placed):
                machine.mode = replace(before, step=FakeStep(), generation=machine.generation)
        return refused

    session.join_anew = join_anew
    return tried


def test_workers_that_keep_much_of_what_was_tried_are_joined_anew_and_all_that_is_known_stays():
    training = Training(Machine()).until("steady").steps(60)
    controller, machine = training.controller, training.machine
    former, built, moves = training.mode, [one.op_devices for one in controller.trials.built], training.moves
    known_s = {one.op_devices: step_s for one, step_s in controller.step_s.items() if isinstance(one, Placed)}
    tried = joining_anew(training)
    training.steps(100)
    assert len(tried) == 1 and controller.generation == machine.generation == 2
    (said,) = training.said("joined")
    assert "left and joined again" in said and "2.0 s" in said
    assert training.mode is not former and training.mode.op_devices == former.op_devices
    assert sorted(one.op_devices for one in controller.trials.built) == sorted(built)
    assert all(machine.is_current(one) for one in controller.trials.built)
    assert {one.op_devices: s for one, s in controller.step_s.items() if isinstance(one, Placed)} == known_s
    assert controller.trials.favourite is training.mode and training.moves == moves
    assert controller.best_single_s is not None


@pytest.mark.parametrize("load", [(2.0, 1.0), (1.0, 2.0)])
def test_workers_that_are_joined_anew_under_a_load_make_no_difference_to_what_follows_when_it_leaves(load):
    left = []
    for seed in SEEDS:
        training, begin = settled(seed, load, 400)
        training.steps(100)
        tried = joining_anew(training)
        training.steps(450)
        assert len(tried) == 1 and training.said("back") == []
        left.append(steps_until_good(training, begin + 400, CALM))
    assert np.median(left) <= 15
    assert np.percentile(left, 90) <= 30


def test_workers_are_joined_anew_also_where_every_other_call_is_of_another_signature():
    training = Training(Machine()).until("steady").steps(60)
    tried = joining_anew(training)
    training.every_other(100)
    assert len(tried) == 1


def test_a_load_is_not_taken_for_gone_because_workers_were_joined_anew_under_it():
    """Probes are sized by what they take, so that new ones would be shorter under a load."""
    for seed in range(6):
        training, _ = settled(seed, (2.0, 1.0), 10**6, probe_noise=0.02)
        training.steps(100)
        tried = joining_anew(training)
        training.steps(200)
        assert len(tried) == 1
        assert not any(" down " in said for said in [*training.said("moved"), *training.said("stayed")])


def test_a_mapping_that_cannot_be_built_again_is_left_out():
    training = Training(Machine()).until("steady").steps(60)
    single = next(one for one in training.controller.trials.built if one.op_devices in SINGLES)
    training.machine.cannot.add(single.op_devices)
    joining_anew(training)
    training.steps(100)
    assert single.op_devices not in [one.op_devices for one in training.controller.trials.built]
    assert len(training.said("error")) == 1


def test_workers_that_must_not_be_left_are_asked_seldom_and_it_is_said_once():
    training = Training(Machine()).until("steady")
    begin_s, tried = training.machine.clock.now_s, joining_anew(training, "this program holds a table")
    training.steps(3000)
    assert 2 <= len(tried) <= MOST_REFUSED_SHARE * (training.machine.clock.now_s - begin_s) / 0.1 + 1
    (said,) = training.said("joined")
    assert said.endswith("but this program holds a table.")


def test_a_device_that_is_lost_again_soon_is_joined_again_soon():
    training = Training(Machine()).until("steady")
    for _ in range(3):
        tried = rejoining(training)
        training.steps(2 * training.controller.settings.probe_every)
        assert len(tried) == 1 and not training.machine.session.missing
