"""A step's seconds hold all that its devices do for it, as long as ways to run it take turns."""

from __future__ import annotations

import pytest
import tensorflow as tf

from placer.devices import gpu_wait
from placer.measure import timing
from placer.train import calls
from placer.train.steps import placed_run


@pytest.fixture
def drained(monkeypatch):
    """How often GPUs were waited for."""
    count = []
    for module in (calls, placed_run, timing):
        monkeypatch.setattr(module, "drain", lambda: count.append(1))
    return count


def test_without_gpus_nothing_is_waited_for():
    assert gpu_wait._gpus() == () and not gpu_wait.has_gpus()
    gpu_wait.drain()


def test_each_device_that_is_waited_for_runs_the_op_itself(monkeypatch, two_cpus):
    names, sync, waited = tuple(two_cpus.tf_names.values()), tf.raw_ops.SyncDevice, []

    def noted():
        sync()
        waited.append(tf.Variable(0.0).device)

    monkeypatch.setattr(gpu_wait, "_gpus", lambda: names)
    monkeypatch.setattr(tf.raw_ops, "SyncDevice", noted)
    gpu_wait.drain()
    assert waited == list(names)


def test_a_timed_step_ends_when_its_devices_are_done(monkeypatch):
    now = [0.0]

    class Step:
        def run_flat(self, inputs):
            return [tf.zeros([])]

    def wait():
        now[0] += 2.0

    monkeypatch.setattr(timing, "drain", wait)
    assert timing.timed(Step(), [], lambda: now[0]) == 2.0


def test_live_steps_are_waited_for_only_after_a_change(monkeypatch, drained, live_hand, make_step):
    monkeypatch.setattr(placed_run, "DRAINED", 3)
    monkeypatch.setattr(placed_run, "has_gpus", lambda: True)
    step, batch = make_step()
    hand = live_hand(step)
    for _ in range(4):
        hand(*batch)
    drained.clear()
    hand.place()
    assert len(drained) == 1
    overlap = []
    for _ in range(8):
        hand(*batch)
        overlap.append(hand.live.overlaps)
    assert len(drained) == 1 + 3 and overlap == [False] * 3 + [True] * 5
    hand.live.mode = hand.live.mode
    hand(*batch)
    assert len(drained) == 1 + 3
    hand.move()
    hand(*batch)
    assert len(drained) == 1 + 3 + 2 and not hand.live.overlaps
    hand.close()
