"""Many variables copied at once."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from placer import tf_internals
from placer.devices.variables import blank_variable, wait_for
from placer.execute import variable_copies
from placer.execute.variable_copies import Pair, Transfers


@pytest.fixture
def pairs(two_cpus):
    values = [tf.range(6.0), tf.constant(3, tf.int64), tf.constant([[True], [False]]), tf.constant([1.5], tf.float16)]
    sources = [tf.Variable(value) for value in values]
    targets = [blank_variable(two_cpus.tf_name(i % 2), source) for i, source in enumerate(sources)]
    wait_for(targets)
    return [Pair(source, target) for source, target in zip(sources, targets, strict=True)]


def test_every_target_holds_its_source_and_sources_stay(pairs):
    before = [pair.source.numpy() for pair in pairs]
    Transfers()(pairs)
    for pair, value in zip(pairs, before, strict=True):
        np.testing.assert_array_equal(pair.target.numpy(), value)
        np.testing.assert_array_equal(pair.source.numpy(), value)


def test_what_the_source_becomes_later_is_not_the_targets(pairs):
    Transfers()(pairs)
    pairs[0].source.assign_add(tf.ones([6]))
    assert (pairs[0].target.numpy() == np.arange(6.0)).all()


def test_one_function_serves_a_route_whatever_the_order(pairs):
    transfers = Transfers()
    transfers(pairs), transfers(pairs[::-1])
    assert len(transfers._names) == 1
    transfers(pairs[:1])
    assert len(transfers._names) == 2
    transfers.forget()
    transfers([])
    assert not transfers._names


def test_only_the_latest_functions_are_kept(two_cpus, monkeypatch):
    monkeypatch.setattr(variable_copies, "MOST_ROUTES", 2)
    transfers = Transfers()
    there = [tf.Variable(float(i)) for i in range(4)]
    here = [blank_variable(two_cpus.tf_name(1), v) for v in there]
    names = set()
    for count in (1, 2, 3, 1, 4, 1):
        transfers([Pair(there[i], here[i]) for i in range(count)])
        names |= set(transfers._names.values())
    wait_for(here)
    assert [float(v.numpy()) for v in here] == [0.0, 1.0, 2.0, 3.0]
    assert len(transfers._names) == 2
    assert {name for name in names if tf_internals.has_function(name)} == set(transfers._names.values())
    transfers.forget()
    assert not any(map(tf_internals.has_function, names))
