"""A step that was built trains nothing until it is settled, and is settled only for devices that are still joined."""

from __future__ import annotations

import tensorflow as tf

from placer.result import Failed
from placer.train.steps.modes import Built, Placed


def test_a_step_is_settled_once_its_devices_were_joined_and_never_after_they_were_joined_anew(two_cpus, live_hand):
    weight = tf.Variable(1.0)
    hand = live_hand(lambda x: weight.assign_add(x))
    for _ in range(3):
        hand(tf.constant(1.0))
    hand.place()
    ops = len(hand.live.joined.captured.graph)
    built = [hand.live.build([1] * ops, (), "second") for _ in range(2)]
    assert all(isinstance(b, Built) for b in built) and all(b.blank for b in built)
    placed = hand.live.settle(built[0])
    assert isinstance(placed, Placed) and placed.use.replicas == list(placed.step.variables.values())
    assert not built[0].blank and placed.step is built[0].step

    hand.live.session.connection.generation += 1  # as joining anew does
    stale = hand.live.settle(built[1])
    assert isinstance(stale, Failed) and stale.reason == "device"
    before = hand.live.mode
    hand.live.mode = placed
    assert hand.live.mode is before
    hand.live.session.connection.generation -= 1
    hand.close()
