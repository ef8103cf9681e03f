"""On a simulated machine, a mapping is kept while nothing changes, and loads that land or leave are followed."""

import numpy as np
import pytest

from search.online.diagnose.probe_budget import MeteredProbes
from search.online.diagnose.slowdown_monitor import SlowdownMonitor
from tests.search.online.simulated.machine import Machine
from tests.search.online.simulated.mappings import CALM, SINGLES, pool
from tests.search.online.simulated.planners import RealPlanner
from tests.search.online.simulated.training import SEEDS, Training, settled, steps_until_good


@pytest.mark.some(1)
@pytest.mark.parametrize("noise", [{}, {"hang": 0.7}, {"drift": 0.2}, {"stragglers": 0.05}])
def test_nothing_moves_in_ten_thousand_steady_steps(noise):
    for seed in range(4):
        training = Training(Machine(seed, **noise)).until("steady")
        mode, moves = training.mode, training.moves
        training.steps(10_000)
        assert (training.mode, training.moves) == (mode, moves)


def test_that_gpus_are_no_longer_waited_for_is_no_change_of_the_load():
    for seed in range(4):
        training = Training(Machine(seed, noise=0.01, stragglers=0.0, overlap=0.7)).until("steady").steps(1000)
        assert not training.said("alarm")
        training.machine.loads.append((training.machine.step, 10_000, (3.0, 3.0)))
        training.steps(300)
        assert training.said("alarm")


def test_an_alarm_counts_steps_also_where_only_every_fifth_is_looked_at():
    training = Training(Machine(noise=0.01, stragglers=0.0)).until("steady").steps(100)
    machine, looks = training.machine, 0

    def look():
        step_s = machine.run(machine.mode)
        training.controller.narrator.step += 5
        machine.mode = training.script.send(step_s)

    for _ in range(100):
        look()
    machine.loads.append((machine.step, 10**6, (2.0, 2.0)))
    while not training.said("alarm"):
        look()
        looks += 1
    (entry,) = (entry for entry in training.journal.entries if entry.kind == "alarm")
    assert 5 * (looks - 2) <= entry.numbers["steps"] <= 5 * (looks + 2)


def test_steps_that_have_become_faster_for_good_are_looked_at_in_vain_once():
    """As where the search ran under a load that goes: what runs stays the best, and no step is lost to win back."""
    for seed in range(6):
        machine = Machine(seed)
        machine.loads.append((0, 10**6, (1.0, 2.0)))
        training = Training(machine).until("steady").steps(60)
        machine.loads[0] = (0, machine.step, (1.0, 2.0))
        before = len(training.said("stayed"))
        training.steps(3000)
        assert sum(" down " in said for said in training.said("stayed")[before:]) <= 1


@pytest.mark.parametrize("load", [(2.0, 1.0), (1.0, 2.0)])
def test_after_a_load_lands_or_leaves_steps_are_soon_as_good_as_they_can_be(load):
    landed, left = [], []
    for seed in SEEDS:
        training, begin = settled(seed, load, 150)
        training.steps(300)
        landed.append(steps_until_good(training, begin, load))
        left.append(steps_until_good(training, begin + 150, CALM))
    assert np.median(landed) <= 30
    assert np.percentile(landed, 75) <= 60
    assert np.median(left) <= 15
    assert np.percentile(left, 90) <= 30


@pytest.mark.parametrize(("how", "seeds"), [(Training.steps, len(SEEDS)), (Training.every_other, 8)])
def test_when_slow_links_are_fast_again_steps_are_soon_as_good_as_before(how, seeds):
    """Also if every other call is of another signature. No step of a mapping that avoids the links shows that they are
    fast again: only probes do.
    """
    avoided, left = 0, []
    for seed in range(seeds):
        training, begin = settled(seed, CALM, 1)
        training.machine.links.append((begin, begin + 150, 12.0))
        how(training, 150)
        avoided += len(set(training.controller.mode.op_devices)) == 1
        how(training, 150)
        left.append(steps_until_good(training, begin + 150, CALM))
    assert avoided >= 0.75 * seeds  # a mapping across them is hardly slower than one device, so that noise may decide
    assert np.median(left) <= 30


def growing(seed, to, steps, pieces=40):
    """A training on which a load on worker:0 grew evenly to that factor."""
    training = Training(Machine(seed)).until("steady").steps(60)
    begin = training.machine.step
    for i in range(pieces):
        end = begin + (steps * (i + 1) // pieces if i + 1 < pieces else 10 * steps)
        load = (1.0 + (to - 1.0) * (i + 1) / pieces, 1.0)
        training.machine.loads.append((begin + steps * i // pieces, end, load))
    return training.steps(steps)


@pytest.mark.parametrize("grown", [(1.5, 400), (2.0, 400)])
def test_a_load_that_grows_slowly_is_followed(grown):
    shares = []
    for seed in range(8):
        training = growing(seed, *grown).steps(150)
        shares.append(training.machine.best_s((grown[0], 1.0)) / training.true_s)
    assert np.median(shares) >= 0.93


def test_where_a_load_grows_on_after_a_move_that_is_noticed_before_steps_settle():
    """It is an alarm of its own, because the steps of the new mapping are too few to be compared with each other."""
    grew, good = 0, []
    for seed in range(24):
        training = growing(seed, 2.0, 150)
        whole = training.machine.step
        training.steps(200)
        grew += any("the load grows" in sentence for sentence in training.said("alarm"))
        good.append(steps_until_good(training, whole, (2.0, 1.0), 200))
    assert grew >= 6
    assert np.median(good) <= 70


def test_a_look_is_not_taken_where_it_would_cost_more_than_it_may_gain():
    """A weak load is worth a look to steps of a tenth of a second, and not to those of ten milliseconds."""
    tried = {}
    for scale in (1.0, 0.1):
        training, _ = settled(2, (1.25, 1.0), 10**6, scale=scale, probe_noise=0.02)
        before = len(training.controller.tried)
        training.steps(400)
        tried[scale] = len(training.controller.tried) - before
        put_off = ["would cost more than it may gain" in sentence for sentence in training.said("stayed")]
        assert put_off and all(put_off) is (scale < 1) and any(put_off) is (scale < 1)
        assert len(put_off) <= 6  # and it does not say so all the time
    assert tried[1.0] > 0 and tried[0.1] == 0


def test_what_a_look_costs_is_counted_also_when_no_usual_step_is_known():
    training, _ = settled(0, (2.0, 1.0), 10**6, noise=0.0, stragglers=0.0)
    machine, trials = training.machine, training.controller.trials
    usual_s, before_s = trials.known_s(trials.mode), trials.lost_s
    trials.only_incumbent()  # as at the beginning of a look
    work = trials.meanwhile(machine.background(lambda: None))
    mode, steps = next(work), 0
    with pytest.raises(StopIteration):
        while True:
            mode, steps = work.send(machine.run(mode)), steps + 1
    assert steps > 2
    assert trials.lost_s - before_s >= 0.4 * steps * usual_s  # the machine takes half as long again meanwhile


def test_a_load_that_went_after_a_look_in_vain_is_forgotten(monkeypatch):
    """It would be probed, and mappings would be asked for under it, for ever."""
    made = []

    class Seen(SlowdownMonitor):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr("search.online.phases.adaptation.SlowdownMonitor", Seen)
    forgotten = 0
    for seed in range(6):
        training, _ = settled(seed, (1.6, 1.0), 60, probe_noise=0.02)
        training.machine.cannot |= {devices for devices in pool() if len(set(devices)) > 1}  # nothing can be found
        training.steps(60)
        assert made[-1].is_slow
        training.steps(1500)
        forgotten += not made[-1].is_slow
    assert forgotten >= 5


def test_a_load_is_not_taken_for_gone_because_gpus_are_no_longer_waited_for(monkeypatch):
    """Steps that overlap take 0.7 of what they took before, so that a load of 1.6 looks like 1.1."""
    monkeypatch.setattr("search.online.phases.adaptation.LookCost.may_pay", lambda *_: False)
    for seed in range(4):
        training, begin = settled(seed, (1.6, 1.0), 10**6, overlap=0.7, quiet=20)
        training.steps(800)
        assert [e for e in training.journal.entries if e.kind == "stayed" and e.step > begin + 200]


def test_what_a_look_in_vain_cost_does_not_hide_the_load_that_lands_next(monkeypatch):
    made = []

    class Seen(MeteredProbes):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr("search.online.phases.adaptation.MeteredProbes", Seen)
    landed = []
    for seed in range(6):
        training, begin = settled(seed, (2.0, 1.0), 300)
        made[-1].pay(9.0)  # hundreds of steps would have to pay for it
        training.steps(150)
        landed.append(steps_until_good(training, begin, (2.0, 1.0)))
    assert np.median(landed) <= 30


def test_a_load_that_lands_while_mappings_are_looked_at_is_noticed(monkeypatch):
    """Its steps are those with which the test begins anew."""
    landed = []

    def look(self, load, *, returns):
        self.trials.only_incumbent()
        yield from self.trials.run_undisturbed(12)
        machine = self.trials.live
        if not landed:
            landed.append(machine.step)
            machine.loads.append((machine.step, 10**6, (3.0, 3.0)))
        yield from self.trials.run_undisturbed(12)

    monkeypatch.setattr("search.online.phases.adaptation.Look.run", look)
    quiet = {"noise": 0.01, "stragglers": 0.0, "understated": 0.0, "probe_noise": 0.0}
    training, _ = settled(0, (2.0, 1.0), 10**6, **quiet)
    training.steps(60)
    assert landed and len(training.said("alarm")) == 2


def test_under_a_load_steps_compare_with_the_fastest_single_device_of_now():
    training, _ = settled(0, (2.0, 1.0), 1000)
    training.steps(200)
    controller, machine = training.controller, training.machine
    assert set(controller.trials.best_single.op_devices) == {1}
    speedup = controller.best_single_s / controller.step_s[controller.mode]
    truly = machine.true_s(controller.trials.best_single) / machine.true_s(controller.mode)
    assert speedup == pytest.approx(truly, rel=0.1)
    assert training.true_s < machine.mapping_s(SINGLES[1])


def test_where_probes_see_nothing_single_devices_tell_what_slowed():
    good = 0
    for seed in range(20):
        training, begin = settled(seed, (2.0, 1.0), 1000, understated=0.0, probe_noise=0.0)
        training.steps(150)
        good += steps_until_good(training, begin, (2.0, 1.0)) < 70
    assert good >= 15


@pytest.mark.parametrize("then", [(1.0, 2.0), (2.0, 2.0), (3.0, 1.0)])
def test_where_probes_see_nothing_a_second_load_is_followed_as_well(then):
    good = 0
    for seed in range(6):
        training, begin = settled(seed, (2.0, 1.0), 200, understated=0.0, probe_noise=0.0)
        training.machine.loads.append((begin + 200, begin + 2000, then))
        training.steps(450)
        good += steps_until_good(training, begin + 200, then, 250) < 150
    assert good >= 4


def test_everything_slowed_alike_is_no_reason_to_move():
    for seed in range(10):
        training, _ = settled(seed, (1.8, 1.8), 1000, understated=1.0, probe_noise=0.02)
        mode = training.mode
        training.steps(300)
        assert training.mode is mode
        assert "alike" in training.said("stayed")[0]


def test_a_load_that_comes_and_goes_is_followed_less_and_less():
    training = Training(Machine(probe_noise=0.04)).until("steady").steps(60)
    begin, moves = training.machine.step, []
    for i in range(60):
        training.machine.loads.append((begin + 40 * i, begin + 40 * i + 20, (2.0, 1.0)))
    for _ in range(3):
        before = training.moves
        training.steps(800)
        moves.append(training.moves - before)
    assert moves[2] <= moves[0] / 2


def test_a_dry_run_says_what_it_would_try_and_moves_nothing():
    training, begin = settled_dry()
    mode = training.mode
    built = len(training.controller.trials.built)
    training.steps(200)
    assert training.mode is mode
    assert all(ran is mode for ran, _, _ in training.machine.ran[begin:])
    assert len(training.controller.trials.built) == built
    said = training.said("stayed")[0]
    assert "load on worker:0 up" in said
    assert "ms a step predicted, but only watches" in said


def settled_dry():
    training = Training(Machine(), dry_run=True).until("steady").steps(60)
    begin = training.machine.step
    training.machine.loads.append((begin, begin + 1000, (2.0, 1.0)))
    return training, begin


def test_under_a_load_the_searcher_that_was_chosen_is_asked_again():
    training = Training(Machine(planner=RealPlanner), searcher="local", budget=9).until("steady")
    step = training.machine.step
    training.machine.loads.append((step + 50, step + 10**6, (2.5, 1.0)))
    training.steps(700)
    assert training.true_s <= 1.15 * training.machine.best_s((2.5, 1.0))
    assert {trial.name for trial in training.controller.tried if trial.op_devices} <= {"single", "local"}
