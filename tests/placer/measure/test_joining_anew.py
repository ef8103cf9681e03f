"""Workers keep something of each placed step that was closed: between races they are joined anew, and free it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from placer.devices.cluster import Devices
from placer.devices.workers import leftovers
from placer.graph.mapping import Mapping
from placer.measure.runner import Runner
from placer.measure.settings import RunnerSettings
from placer.measure.untouched import measure_untouched
from placer.result import Failed, Measured
from placer.trace.capture import capture

FEW = RunnerSettings(warm_up=1, repeats=3)


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch):
    monkeypatch.setattr(leftovers, "_ops", 0)


@pytest.fixture
def runners(two_cpus, make_step, monkeypatch):
    """Two that share devices, of which it is told that they are workers; the second borrows the first one's anchor. And
    how often these were joined anew.
    """
    step, inputs = make_step()
    captured = capture(step, inputs, "small")
    inputs = captured.flat_inputs(inputs)
    references = measure_untouched(captured, inputs, FEW).references
    joined = []

    def join_anew(devices):
        joined.append(1)
        leftovers.forget()

    monkeypatch.setattr(Devices, "join_anew", join_anew)
    devices = replace(two_cpus, addresses={"worker:0": "localhost:1"})
    first = Runner(captured, devices, inputs, references, FEW)
    assert isinstance(first.measure(single(first, 0)), Measured)
    second = Runner(captured, devices, inputs, references, FEW, beside=first)
    yield first, second, joined
    second.close()
    first.close()


def grow(beyond):
    """Close steps of as many ops as workers may keep, and `beyond` more."""
    leftovers.add(leftovers.MOST_OPS + beyond - leftovers._ops, leftovers.times_freed())


def single(runner, device):
    return Mapping.single(runner.captured.graph, runner.devices.topology, device)


def apart(runner):
    """A mapping that uses both devices."""
    units = runner.captured.graph.colocated
    devices = [0] * len(runner.captured.graph)
    for v in units[len(units) // 2]:
        devices[v] = 1
    return Mapping(runner.captured.graph, runner.devices.topology, devices)


def test_nothing_is_joined_anew_before_many_ops_were_built(runners):
    first, second, joined = runners
    grow(0)
    assert isinstance(first.measure(single(first, 1)), Measured) and not joined
    grow(1)
    assert isinstance(second.measure(apart(second)), Measured) and joined == [1]
    assert isinstance(second.measure(single(second, 1)), Measured) and joined == [1]


def test_what_runners_keep_is_set_up_again(runners):
    first, second, _ = runners
    first.race([single(first, 1)])
    second.race([apart(second)])
    second.incumbent, second.incumbent_s = second.anchor, second.anchor_s
    steps, kept, anchor_s = [first.anchor, first.incumbent], (first.kept, second.kept), first.anchor_s
    grow(1)
    assert [type(result) for result in second.race([apart(second), single(second, 1)])] == [Measured, Measured]
    assert not {id(step) for step in steps} & {id(first.anchor), id(first.incumbent), id(second.anchor)}
    assert second.anchor is first.anchor is not None and first.anchor_s == second.anchor_s == anchor_s
    assert first.kept == kept[0] and not any(step._finalizer.alive for step in steps)
    assert isinstance(first.measure(apart(first)), Measured)


@pytest.mark.parametrize("which", ["anchor", "incumbent"])
def test_where_what_was_kept_does_not_run_any_more_others_are_measured_all_the_same(runners, which, monkeypatch):
    first, second, _ = runners
    first.race([single(first, 1)])
    first.incumbent, first.incumbent_s = first.ready(single(first, 1))[0], 1e-9
    first._op_mapping_of = {first.anchor: single(first, 0), first.incumbent: single(first, 1)}
    gone, ready = single(first, 0 if which == "anchor" else 1), Runner.ready

    def fails(runner, mapping):
        return Failed("memory", "worker:0 ran out of memory") if mapping == gone else ready(runner, mapping)

    grow(1)
    with monkeypatch.context() as patched:
        patched.setattr(Runner, "ready", fails)
        assert isinstance(second.measure(apart(second)), Measured)
    assert gone not in first.kept
    assert isinstance(first.measure(apart(first)), Measured)
    assert first.anchor is not None and first.incumbent is not None
    assert len(first.kept) == len({id(first.anchor), id(first.incumbent)})


STORY = """
import os, signal
from placer.devices.opening import open_devices
from placer.devices.workers import leftovers
from placer.devices.workers.deadline import DeviceLostError
from placer.graph.mapping import Mapping
from placer.measure.runner import Runner
from placer.measure.untouched import measure_untouched
from placer.result import Measured
from placer.trace.capture import capture
from tests.conftest import small_step
from tests.placer.measure.test_joining_anew import FEW, apart, grow, single

step, inputs = small_step()
captured = capture(step, inputs, "small")
inputs = captured.flat_inputs(inputs)
references = measure_untouched(captured, inputs, FEW).references
leftovers.MOST_OPS = 3 * len(captured.graph)
with open_devices("workers:2", links=False, deadlines=True) as devices:
    joined, join_anew = [], type(devices).join_anew
    type(devices).join_anew = lambda self: (joined.append(leftovers._ops), join_anew(self))
    first = Runner(captured, devices, inputs, references, FEW)
    for _ in range(6):
        for mapping in (single(first, 0), single(first, 1), apart(first)):
            found = first.measure(mapping)
            assert isinstance(found, Measured), found
    assert len(joined) >= 3 and max(joined) <= 2 * leftovers.MOST_OPS, joined
    second = Runner(captured, devices, inputs, references, FEW, beside=first)
    while len(joined) < 6:
        found = second.race([apart(second), single(second, 1)])
        assert all(isinstance(result, Measured) for result in found), found
    assert second.anchor is first.anchor
    third, before = Runner(captured, devices, inputs, references, FEW), first.anchor  # of another search
    for runner in (third, third, first, second):
        grow(1)
        found = runner.race([apart(runner), single(runner, 1)])
        assert all(isinstance(result, Measured) for result in found), found
    assert first.anchor is not before
    os.kill(devices.workers.processes[1].pid, signal.SIGKILL)
    grow(1)
    try:
        second.measure(apart(second))
    except DeviceLostError as error:
        print("kept", error)
"""


@pytest.mark.workers
@pytest.mark.slow
def test_between_races_on_real_workers_nothing_that_was_kept_is_lost():
    ran = subprocess.run([sys.executable, "-c", STORY], capture_output=True, text=True, timeout=900)
    assert ran.stdout.startswith("kept"), ran.stdout + ran.stderr[-3000:]


GROWTH = """
import random, sys
import psutil
from experiments import zoo
from placer.devices.opening import open_devices
from placer.devices.workers import leftovers
from placer.graph.coarsen import coarsen
from placer.graph.mapping import Mapping
from placer.measure.runner import Runner
from placer.measure.untouched import measure_untouched
from placer.result import Measured
from placer.trace.capture import capture
from tests.placer.measure.test_joining_anew import FEW

training = zoo.load("mobilenet_v3")
captured = capture(training.step, training.example_inputs, "mobilenet_v3")
inputs = captured.flat_inputs(training.example_inputs)
references = measure_untouched(captured, inputs, FEW).references
leftovers.MOST_OPS = int(sys.argv[1]) * len(captured.graph)
with open_devices("workers:2", links=False, deadlines=True) as devices:
    coarse = coarsen(captured.graph, 40, devices.topology)
    runner, chance, held = Runner(captured, devices, inputs, references, FEW), random.Random(0), []
    workers = [psutil.Process(process.pid) for process in devices.workers.processes]
    for _ in range(24):
        of_unit = [dict.fromkeys(unit, chance.randrange(2)) for unit in coarse.graph.colocated]
        device_of = {group: device for unit in of_unit for group, device in unit.items()}
        by_group = tuple(device_of[group] for group in range(len(coarse.graph)))
        found = runner.measure(coarse.expand_mapping(Mapping(coarse.graph, devices.topology, by_group)))
        assert isinstance(found, Measured), found
        held.append(sum(worker.memory_info().rss for worker in workers))
    runner.close()
    print((held[-1] - held[7]) / 16 / 2**20)
"""


@pytest.mark.nightly
@pytest.mark.workers
def test_workers_grow_by_what_is_tried_until_they_are_joined_anew():
    grown = []
    for most in (1000, 4):
        ran = subprocess.run([sys.executable, "-c", GROWTH, str(most)], capture_output=True, text=True, timeout=600)
        assert ran.returncode == 0, ran.stderr[-3000:]
        grown.append(float(ran.stdout.split()[-1]))
    always, anew = grown
    assert always > 10 and anew < always / 4, grown  # MiB a mapping, on both workers
