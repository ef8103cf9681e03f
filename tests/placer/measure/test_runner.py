"""Measuring: in turn with the incumbent, early stop, the loss check, and failures as values."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from itertools import count

import numpy as np
import pytest
import tensorflow as tf

from placer.devices.host.suspends import Suspends
from placer.graph.mapping import Mapping
from placer.measure.race import GPU_WARM_UP_S, RacedStep
from placer.measure.runner import NoForesight, Runner
from placer.measure.settings import RunnerSettings
from placer.measure.step_check import CHECKED_STEPS
from placer.measure.timing import timed
from placer.measure.untouched import UntouchedStep, measure_untouched
from placer.result import Failed, Measured, heats, summary
from placer.trace.capture import capture
from tests.clock import Clock
from tests.placer.measure.fake_steps import FakeStep, forever

FEW = RunnerSettings(warm_up=1, repeats=5)


@pytest.fixture(scope="module")
def captured(two_cpus, make_step):
    step, inputs = make_step()
    captured = capture(step, inputs, "small")
    return captured, captured.flat_inputs(inputs)


@pytest.fixture
def runner(captured, two_cpus):
    step, inputs = captured
    references = measure_untouched(step, inputs, FEW).references
    runner = Runner(step, two_cpus, inputs, references, FEW)
    yield runner
    runner.close()


def single(runner, device):
    return Mapping.single(runner.captured.graph, runner.devices.topology, device)


def against(captured, two_cpus, candidate, anchor, incumbent, settings=FEW):
    """What a candidate's step times come to beside an anchor's and an incumbent's."""
    runner, (step,), (result,) = race(captured, two_cpus, [candidate], anchor, incumbent, settings)
    return runner, step, result


def race(captured, two_cpus, candidates, anchor, incumbent, settings=FEW):
    """What several candidates' step times come to beside an anchor's and an incumbent's."""
    clock = Clock()
    runner = Runner(captured[0], two_cpus, captured[1], [], settings, clock)
    runner.anchor, runner.anchor_s = FakeStep(clock, forever(anchor)), 2.0
    runner.incumbent = FakeStep(clock, forever(incumbent))
    steps = [FakeStep(clock, candidate) for candidate in candidates]
    return runner, steps, runner._raced([RacedStep(step, 0.5) for step in steps])


def test_summary_is_median_and_interquartile_range():
    assert summary([1.0, 2.0, 3.0, 4.0, 100.0]) == Measured(3.0, 2.0, 5)


def test_results_are_told_in_the_anchors_time(captured, two_cpus):
    """The anchor took 2 s when it was measured and takes 4 s now: a step of 3 s now is one of 1.5 s then."""
    _, _, result = against(captured, two_cpus, forever(3.0), anchor=4.0, incumbent=3.5)
    assert result == Measured(1.5, 0.0, 5, 0.5, stopped_early=False)


def test_a_runner_beside_another_tells_its_results_in_that_ones_anchors_time(captured, two_cpus):
    first, _, _ = race(captured, two_cpus, [], anchor=4.0, incumbent=3.5)
    runner = Runner(captured[0], two_cpus, captured[1], [], FEW, first.clock, beside=first)
    slow, fast = (FakeStep(first.clock, forever(seconds)) for seconds in (5.0, 3.0))
    found = [runner._raced([RacedStep(step, 0.5)])[0] for step in (slow, fast)]
    assert [result.step_s for result in found] == [2.5, 1.5]
    assert [result.stopped_early for result in found] == [True, False]
    assert runner.incumbent is fast
    runner.close()
    assert fast.closed and not first.anchor.closed


class SleepyStep(FakeStep):
    """The machine is suspended in its second step, which takes 40 times as long, on caches that went cold."""

    asleep_s, steps = 0.0, 0

    def run_flat(self, inputs):
        self.steps += 1
        self.asleep_s = 3600.0 if self.steps >= 2 else 0.0
        self.clock.now_s += 40.0 if self.steps == 2 else 0.0
        return super().run_flat(inputs)


def test_a_step_across_a_suspend_is_not_believed_and_another_is_timed(captured, two_cpus):
    clock = Clock()
    step = SleepyStep(clock, forever(1.0))
    suspends = Suspends(clock, lambda: clock() + step.asleep_s)
    assert [timed(step, [], clock, suspends) for _ in range(3)] == [1.0, 1.0, 1.0]
    assert step.steps == 4
    step.steps = step.asleep_s = 0
    runner = Runner(captured[0], two_cpus, captured[1], [], FEW, clock, suspends=Suspends(clock, suspends._since_boot))
    assert runner._raced([RacedStep(step, 0.5)]) == [Measured(1.0, 0.0, 5, 0.5)]
    step.steps = step.asleep_s = 0
    runner = Runner(captured[0], two_cpus, captured[1], [], FEW, clock, suspends=Suspends(clock, suspends._since_boot))
    assert runner.in_turn.compare([step], 5) == [Measured(1.0, 0.0, 5)]


def test_the_faster_one_becomes_incumbent(captured, two_cpus):
    runner, step, _ = against(captured, two_cpus, forever(3.0), anchor=4.0, incumbent=3.5)
    assert runner.incumbent is step
    runner, step, _ = against(captured, two_cpus, forever(3.6), anchor=4.0, incumbent=3.5)
    assert runner.incumbent is not step


def test_a_candidate_whose_best_step_loses_to_the_worst_is_stopped_early(captured, two_cpus):
    _, _, result = against(captured, two_cpus, forever(3.6), anchor=4.0, incumbent=3.5)
    assert result.stopped_early
    assert result.repeats == FEW.give_up_after


def test_a_candidate_far_behind_is_told_by_its_first_step_and_another_goes_on(captured, two_cpus):
    clock = Clock()
    runner = Runner(captured[0], two_cpus, captured[1], [], replace(FEW, drop_at_once=3.0), clock)
    assert runner._raced([RacedStep(FakeStep(clock, forever(2.0)), 0.5)])[0].repeats == FEW.repeats  # nobody to lose to
    far, near = FakeStep(clock, iter([6.5])), FakeStep(clock, forever(5.5))
    results = runner._raced([RacedStep(step, 0.5) for step in (far, near)])
    assert results[0] == Measured(6.5, 0.0, 1, 0.5, stopped_early=True)
    assert results[1].repeats > 1
    assert runner._raced([RacedStep(FakeStep(clock, iter([7.0])), 0.5)]) == [
        Measured(7.0, 0.0, 1, 0.5, stopped_early=True)
    ]


def test_a_short_first_step_rules_nothing_out(captured, two_cpus):
    clock = Clock()
    runner = Runner(captured[0], two_cpus, captured[1], [], replace(FEW, drop_at_once=3.0, drop_from_s=7.0), clock)
    runner._raced([RacedStep(FakeStep(clock, forever(2.0)), 0.5)])
    slow_at_first = FakeStep(clock, iter([6.5, *[1.5] * 99]))
    assert runner._raced([RacedStep(slow_at_first, 0.5)])[0].repeats == FEW.repeats
    assert runner.incumbent is slow_at_first


def test_a_hopeless_candidate_is_stopped_at_once(captured, two_cpus):
    _, _, result = against(captured, two_cpus, forever(20.0), anchor=4.0, incumbent=3.5)
    assert result.repeats == 2


def test_one_slow_step_does_not_stop_a_candidate(captured, two_cpus):
    seconds = iter([1.0, 1.0, 9.0, 1.0, 1.0, 1.0])
    _, _, result = against(captured, two_cpus, seconds, anchor=4.0, incumbent=3.5)
    assert not result.stopped_early
    assert result.step_s == pytest.approx(0.5)


def test_repeats_are_halved_and_only_the_winner_takes_all(captured, two_cpus):
    """Of four candidates all take 2 steps, the faster two 3, the fastest 5; it becomes the incumbent."""
    times = [3.3, 3.0, 3.4, 3.2]
    runner, steps, results = race(captured, two_cpus, [forever(t) for t in times], anchor=4.0, incumbent=3.5)
    assert heats(4, FEW.repeats) == [2, 3, 5]
    assert [result.repeats for result in results] == [2, 5, 2, 3]
    assert [result.step_s for result in results] == pytest.approx([t / 2 for t in times])
    assert runner.incumbent is steps[1]


def test_a_candidate_that_fails_leaves_the_race_to_the_others(captured, two_cpus):
    class Lost(FakeStep):
        def run_flat(self, inputs):
            raise tf.errors.UnavailableError(None, None, "worker 1 is gone")

    runner, _, _ = race(captured, two_cpus, [], anchor=4.0, incumbent=3.5)
    clock = runner.clock
    failed, result = runner._raced([RacedStep(Lost(clock, []), 0.0), RacedStep(FakeStep(clock, forever(3.0)), 0.0)])
    assert failed == Failed("device", "worker 1 is gone")
    assert result.repeats == FEW.repeats


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (tf.errors.UnavailableError(None, None, "worker 1 is gone"), Failed("device", "worker 1 is gone")),
        (tf.errors.ResourceExhaustedError(None, None, "OOM"), None),
        (tf.errors.InternalError(None, None, "of whatever"), None),
    ],
)
def test_a_failure_of_the_anchor_is_none_of_the_candidates(captured, two_cpus, error, result):
    class Fails(FakeStep):
        def run_flat(self, inputs):
            raise error

    runner, _, _ = race(captured, two_cpus, [], anchor=4.0, incumbent=3.5)
    runner.anchor = Fails(runner.clock, [])
    assert runner._raced([RacedStep(FakeStep(runner.clock, forever(3.0)), 0.0)]) == [result]


def test_where_the_anchor_fails_candidates_are_measured_without_it(runner, monkeypatch):
    def runs_out(inputs):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM")

    assert isinstance(runner.measure(single(runner, 0)), Measured)
    former = runner.anchor
    monkeypatch.setattr(former, "run_flat", runs_out)
    found = runner.race([single(runner, 1), single(runner, 0)])
    assert [type(result) for result in found] == [Measured, Measured]
    assert runner.anchor is not former and runner.kept[0] == single(runner, 1)


def test_results_come_in_the_order_of_the_mappings_however_they_were_come_by(runner, monkeypatch):
    def runs_out(inputs):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM")

    refused, ready = single(runner, 1), Runner.ready
    none = Failed("memory", "no room")
    monkeypatch.setattr(Runner, "ready", lambda self, mapping: none if mapping == refused else ready(self, mapping))
    found = runner.race([refused, single(runner, 0), refused])
    assert [type(result) for result in found] == [Failed, Measured, Failed]
    monkeypatch.setattr(runner.anchor, "run_flat", runs_out)
    found = runner.race([single(runner, 0), refused, single(runner, 0)])
    assert [type(result) for result in found] == [Measured, Failed, Measured]


def test_an_anchor_that_grew_slow_before_it_failed_says_nothing_of_the_machines_pace(captured, two_cpus):
    def thrashing():
        yield from (12.0, 12.0)
        raise tf.errors.ResourceExhaustedError(None, None, "OOM")

    runner, _, _ = race(captured, two_cpus, [forever(3.9)], anchor=4.0, incumbent=3.5)
    runner.anchor = FakeStep(runner.clock, thrashing())
    assert runner._raced([RacedStep(FakeStep(runner.clock, forever(3.0)), 0.5)]) == [None]
    runner.close()
    assert runner._raced([RacedStep(FakeStep(runner.clock, forever(3.0)), 0.5)]) == [Measured(1.5, 0.0, 5, 0.5)]


@pytest.mark.parametrize("is_borrowed", [False, True])
def test_the_anchor_is_back_where_what_it_failed_beside_does_not_run_alone(runner, monkeypatch, is_borrowed):
    def runs_out(inputs):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM")

    assert isinstance(runner.measure(single(runner, 0)), Measured)
    second = Runner(
        runner.captured, runner.devices, runner.inputs, runner.check.agreement.references, FEW, beside=runner
    )
    second = second if is_borrowed else runner
    former, former_s, ready, prepared_before = second.anchor, second.anchor_s, Runner.ready, []

    def prepared(self, mapping):
        found = ready(self, mapping)
        if mapping in prepared_before:  # alone
            monkeypatch.setattr(found[0], "run_flat", runs_out)
        prepared_before.append(mapping)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Runner, "ready", prepared)
        patched.setattr(former, "run_flat", runs_out)
        assert isinstance(second.measure(single(runner, 1)), Failed)
    assert second.anchor is not None and (second.anchor is former) == is_borrowed and second.anchor_s == former_s
    assert isinstance(second.measure(single(runner, 1)), Measured)
    second.close()


def test_what_is_measured_alone_after_the_anchor_was_taken_down_is_told_in_the_anchors_time(captured, two_cpus):
    """The anchor took 2 s when it was measured and 4 s last: 3 s alone are 1.5 s then, and so is the next anchor's."""
    runner, _, _ = race(captured, two_cpus, [forever(3.9)], anchor=4.0, incumbent=3.5)
    runner.close()
    assert runner._raced([RacedStep(FakeStep(runner.clock, forever(3.0)), 0.5)]) == [Measured(1.5, 0.0, 5, 0.5)]
    assert runner.anchor_s == 1.5
    assert runner._raced([RacedStep(FakeStep(runner.clock, forever(2.0)), 0.5)])[0].step_s == 1.0
    runner.set_anchor_s(3.0)  # of another session
    runner.close()
    assert runner._raced([RacedStep(FakeStep(runner.clock, forever(2.0)), 0.5)])[0].step_s == 2.0


def test_one_entry_takes_all_repeats_at_once():
    assert heats(1, 12) == [12]
    assert heats(0, 12) == [12]
    assert heats(3, 12) == [3, 6, 12]


def test_the_first_mapping_measured_is_anchor_and_incumbent(runner):
    result = runner.measure(single(runner, 0))
    assert isinstance(result, Measured)
    assert runner.anchor is runner.incumbent
    assert runner.anchor_s == result.step_s


@pytest.mark.parametrize(("kind", "steps"), [("gpu", 30), ("cpu", 0)])
def test_the_first_mapping_wakes_an_idle_gpu_before_it_is_timed(captured, two_cpus, kind, steps):
    clock = Clock()
    topology = two_cpus.topology
    awake = replace(topology, devices=tuple(replace(device, kind=kind) for device in topology.devices))
    runner = Runner(captured[0], replace(two_cpus, topology=awake), captured[1], [], FEW, clock)
    taken = []
    step = FakeStep(clock, (taken.append(i) or GPU_WARM_UP_S / 30 for i in count()))
    (result,) = runner._raced([RacedStep(step, 0.5)])
    assert result.repeats == FEW.repeats
    assert len(taken) == FEW.warm_up + max(0, steps - FEW.warm_up) + FEW.repeats
    later = []
    second = FakeStep(clock, (later.append(i) or 1e-3 for i in count()))
    runner._raced([RacedStep(second, 0.5)])
    assert len(later) == FEW.warm_up + FEW.repeats  # it is awake


def test_values_are_fetched_for_comparison_into_the_hosts_memory(runner, two_cpus):
    """Not to TensorFlow's default device, which is a GPU where there is one."""
    with tf.device("CPU:1"):
        assert isinstance(runner.measure(single(runner, 1)), Measured)
        runner.check.state(runner.anchor, list(runner.captured.variables))
    assert {variable.device for variable in runner.check._fetched.values()} == {two_cpus.host}


def test_a_step_that_computes_something_else_is_a_failure(runner):
    known = runner.check.agreement.references
    runner.check.agreement.references = [replace(outcome, returned=[[np.float32(0.5)]] * 2) for outcome in known]
    result = runner.measure(single(runner, 0))
    assert isinstance(result, Failed)
    assert result.reason == "loss"
    assert "0.5 untouched" in result.detail.replace("np.float32(0.5)", "0.5")


def test_other_bits_than_under_the_first_mapping_are_a_failure(runner):
    assert isinstance(runner.measure(single(runner, 0)), Measured)
    returned, digests = runner.check.agreement._first
    runner.check.agreement._first = [[np.nextafter(v, np.float32(0)) for v in step] for step in returned], digests
    result = runner.measure(single(runner, 1))
    assert isinstance(result, Failed)
    assert "under another mapping" in result.detail


def test_measuring_the_untouched_step_leaves_the_callers_state_alone(captured):
    step, inputs = captured
    before = {name: v.numpy() for name, v in step.variables.items()}
    measure_untouched(step, inputs, FEW)
    for name, variable in step.variables.items():
        np.testing.assert_array_equal(variable.numpy(), before[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factor", "adds", "says"),
    [
        (0.5, 0.0, None),
        (0.5, float("nan"), "NaN after 1 step"),
        (1e20, 0.0, "infinite after 2 steps"),
        (1e10, 0.0, f"infinite after {CHECKED_STEPS + FEW.warm_up + FEW.repeats} steps"),
    ],
)
def test_a_loss_that_is_not_finite_is_told(two_cpus, factor, adds, says):
    weight = tf.Variable(1.0)

    def step(x):
        weight.assign(weight * factor)
        return weight * x + adds, tf.fill([2], float("nan"))  # of what is no scalar, nothing is known

    inputs = (tf.constant(1.0),)
    captured = capture(step, inputs, "diverging")
    diverged = measure_untouched(captured, captured.flat_inputs(inputs), FEW).diverged
    assert diverged == says


def test_the_untouched_step_trains_until_it_is_closed(captured):
    step, inputs = captured
    untouched = UntouchedStep(step)
    first, second = (untouched.run_flat(inputs)[0].numpy() for _ in range(2))
    untouched.close()
    assert second < first


def test_a_switch_moves_the_training_on(runner):
    step, _ = runner.prepare(single(runner, 0))
    loss = step.run_flat(runner.inputs)[0].numpy()
    switched, seconds = runner.switch(step, single(runner, 1))
    assert seconds > 0
    assert switched.run_flat(runner.inputs)[0].numpy() < loss
    assert {v.device for v in switched.variables.values()} == {runner.devices.tf_name(1)}


def test_timed_uses_the_clock_it_is_given():
    clock = Clock()
    assert timed(FakeStep(clock, [0.25]), [], clock) == 0.25


def test_settings_are_frozen():
    with pytest.raises(FrozenInstanceError):
        FEW.repeats = 7


class Roomy(NoForesight):
    """Devices that have room for so many steps at once."""

    def __init__(self, room):
        self.room = room

    def hold(self, mappings):
        return len(mappings) <= self.room


@pytest.mark.parametrize("room", [1, 2, 3, 9])
def test_no_more_steps_are_held_at_once_than_there_is_memory_for(captured, two_cpus, room):
    """Anchor, incumbent and candidates together; the fewer there may be, the fewer race together."""
    step, inputs = captured
    references = measure_untouched(step, inputs, FEW).references
    runner = Runner(step, two_cpus, inputs, references, FEW, foresight=Roomy(room))
    held, most = [], 0
    prepare = runner.prepare

    def prepared(mapping):
        nonlocal most
        made = prepare(mapping)
        held.append(made[0])
        most = max(most, sum(one._finalizer.alive for one in held))
        return made

    runner.prepare = prepared
    some = [single(runner, 0), single(runner, 1), *random_mappings(step.graph, two_cpus.topology, 3)]
    found = runner.race(some)
    assert len(found) == len(some) and all(isinstance(result, Measured) for result in found)
    assert most <= room and len(held) == len(some)
    assert 1 <= len(runner.kept) <= min(room, 2) and all(mapping in some for mapping in runner.kept)
    runner.close()
    assert runner.kept == [] and not any(one._finalizer.alive for one in held)
    assert runner.race([]) == []


def random_mappings(graph, topology, count):
    """Mappings that put each colocated unit on either device."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        devices = [0] * len(graph)
        for unit in graph.colocated:
            d = int(rng.integers(2))
            for v in unit:
                devices[v] = d
        yield Mapping(graph, topology, tuple(devices))
