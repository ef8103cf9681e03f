"""Many variables copied at once."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from placer import tf_internals
from placer.devices.variables import blank_variable, wait_for
from placer.execute import kept_functions
from placer.execute.variable_copies import DividedVariable, Pair, Transfers


@pytest.fixture
def pairs(two_cpus):
    values = [tf.range(6.0), tf.constant(3, tf.int64), tf.constant([[True], [False]]), tf.constant([1.5], tf.float16)]
    sources = [tf.Variable(value) for value in values]
    targets = [blank_variable(two_cpus.tf_name(i % 2), source.shape, source.dtype) for i, source in enumerate(sources)]
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
    assert len(transfers._functions._names) == 1
    transfers(pairs[:1])
    assert len(transfers._functions._names) == 2
    transfers.forget()
    transfers([])
    assert not transfers._functions._names


def test_only_the_latest_functions_are_kept(two_cpus, monkeypatch):
    monkeypatch.setattr(kept_functions, "MOST_KEPT", 2)
    transfers = Transfers()
    there = [tf.Variable(float(i)) for i in range(4)]
    here = [blank_variable(two_cpus.tf_name(1), v.shape, v.dtype) for v in there]
    names = set()
    for count in (1, 2, 3, 1, 4, 1):
        transfers([Pair(there[i], here[i]) for i in range(count)])
        names |= set(transfers._functions._names.values())
    wait_for(here)
    assert [float(v.numpy()) for v in here] == [0.0, 1.0, 2.0, 3.0]
    assert len(transfers._functions._names) == 2
    assert {name for name in names if tf_internals.functions.has_function(name)} == set(
        transfers._functions._names.values()
    )
    transfers.forget()
    assert not any(map(tf_internals.functions.has_function, names))


CUTS = [None, (0, (0, 1, 5)), (0, (0, 2, 3, 5)), (1, (0, 4, 6))]
"""Of a 5 x 6 variable: whole, or (axis, bounds)."""


def held_at(cut, value, names):
    if cut is None:
        return tf.Variable(value)
    axis, bounds = cut
    parts = np.split(value, bounds[1:-1], axis)
    made = [blank_variable(names[i % 2], part.shape, value.dtype) for i, part in enumerate(parts)]
    wait_for(made)
    for variable, part in zip(made, parts, strict=True):
        variable.assign(part)
    return DividedVariable(tuple(made), axis, bounds)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_a_value_survives_each_way_of_cutting_it(two_cpus, dtype):
    value = (np.arange(30).reshape(5, 6) * 7 % 11).astype(dtype)
    names = [two_cpus.tf_name(0), two_cpus.tf_name(1)]
    sources = [held_at(cut, value, names) for cut in CUTS]
    pairs = [Pair(source, held_at(cut, np.zeros_like(value), names[::-1])) for source in sources for cut in CUTS]
    back = [tf.Variable(np.zeros_like(value)) for _ in pairs]
    transfers = Transfers()
    transfers(pairs)
    transfers([Pair(pair.target, whole) for pair, whole in zip(pairs, back, strict=True)])
    for whole in back:
        np.testing.assert_array_equal(whole.numpy(), value)
    for pair in pairs:
        if isinstance(pair.target, DividedVariable):
            _, axis, bounds = pair.target
            for part, expected in zip(pair.target.parts, np.split(value, bounds[1:-1], axis), strict=True):
                np.testing.assert_array_equal(part.numpy(), expected)
