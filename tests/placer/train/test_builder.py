"""A step that was built trains nothing until it is settled, and is settled only for devices that are still joined."""

from __future__ import annotations

import pytest
import tensorflow as tf

from placer.errors import PlacerError
from placer.result import Failed
from placer.train.steps.modes import Built, Placed, Wanted


def test_a_step_is_settled_once_its_devices_were_joined_and_never_after_they_were_joined_anew(two_cpus, live_hand):
    weight = tf.Variable(1.0)
    hand = live_hand(lambda x: weight.assign_add(x).read_value())
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


def test_a_mapping_onto_a_device_that_is_missing_fails_in_one_line(two_cpus, live_hand, monkeypatch):
    weight = tf.Variable(1.0)
    hand = live_hand(lambda x: weight.assign_add(x).read_value())
    for _ in range(3):
        hand(tf.constant(1.0))
    hand.place()
    joined = hand.live.joined
    wanted = Wanted([1] * len(joined.captured.graph), (), "second")
    template = hand.live._builder.template(joined.main)
    monkeypatch.delitem(hand.live.session.present.tf_names, "cpu:1")
    failed = hand.live.build(wanted.op_devices, wanted.order, wanted.name)
    assert isinstance(failed, Failed) and failed.reason == "device" and failed.detail == "cpu:1 is missing."
    with pytest.raises(PlacerError, match="cpu:1 is missing"):
        hand.live._builder.build(template, joined.topology, wanted)
    hand.close()
