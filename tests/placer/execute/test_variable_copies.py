"""Many variables copied at once."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from placer.devices.variables import blank_variable, wait_for
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
