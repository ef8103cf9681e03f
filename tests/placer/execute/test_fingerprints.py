"""Fingerprints of variables, made where they are."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from placer import tf_internals
from placer.execute.fingerprints import Fingerprints, fingerprint
from placer.execute.variable_copies import DividedVariable

VALUES = {
    "floats": tf.reshape(tf.range(6.0), [2, 3]),
    "short": tf.constant([1.5, -0.0], tf.bfloat16),
    "count": tf.constant(3, tf.int64),
    "flags": tf.constant([[True], [False]]),
    "nothing": tf.zeros([0, 4]),
    "nan": tf.constant([np.nan]),
}


def held(two_cpus, values, shift=0):
    """A variable for each value, on one device and the other."""
    made = {}
    for i, (name, value) in enumerate(values.items()):
        with tf.device(two_cpus.tf_name((i + shift) % 2)):
            made[name] = tf.Variable(value)
    return made


def test_a_fingerprint_depends_on_the_value_and_not_on_the_device(two_cpus):
    fingerprints = Fingerprints()
    here, there = held(two_cpus, VALUES), held(two_cpus, VALUES, shift=1)
    assert fingerprints(here) == fingerprints(dict(reversed(there.items())))
    assert len(set(fingerprints(here).values())) == len(VALUES)
    assert fingerprints(here) == {name: fingerprint(np.asarray(value.numpy())) for name, value in VALUES.items()}
    assert fingerprints({}) == {}


def test_the_fingerprint_of_a_divided_variable_is_that_of_its_parts_in_order(two_cpus):
    parts = held(two_cpus, {"first": tf.range(2.0), "second": tf.range(3.0)})
    divided = DividedVariable((parts["second"], parts["first"]), 0, (0, 3, 5))
    found = Fingerprints()({"divided": divided, "whole": parts["first"]})
    assert found["divided"] == fingerprint(np.arange(3, dtype=np.float32)) + found["whole"]


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("floats", [[0.0, 1.0, 2.0], [3.0, 4.0, np.nextafter(np.float32(5), np.float32(6))]]),
        ("floats", [[1.0, 0.0, 2.0], [3.0, 4.0, 5.0]]),
        ("short", [1.5, 0.0]),
        ("count", -3),
        ("flags", [[True], [True]]),
    ],
)
def test_a_single_bit_makes_another(two_cpus, name, other):
    fingerprints, variables = Fingerprints(), held(two_cpus, VALUES)
    before = fingerprints(variables)
    variables[name].assign(tf.constant(other, variables[name].dtype))
    after = fingerprints(variables)
    assert {n for n in VALUES if after[n] != before[n]} == {name}


def test_functions_are_kept_until_they_are_forgotten(two_cpus):
    fingerprints, variables = Fingerprints(), held(two_cpus, VALUES)
    fingerprints(variables), fingerprints(variables)
    [name] = fingerprints._functions._names.values()
    fingerprints.forget()
    assert not tf_internals.functions.has_function(name)
    assert fingerprints(variables)
