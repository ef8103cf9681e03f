"""A number that became a tensor is used only as Python's own arithmetic would have it."""

from __future__ import annotations

import pytest
import tensorflow as tf

from placer.trace.eager.number_use import number_misused

WEIGHT = tf.Variable([1.0, 2.0])


@tf.function
def inner(rate=None):
    return WEIGHT if rate is None else WEIGHT * rate


def descended(rate):
    """The gradient of a weighted loss goes through the function, which is given no number."""
    with tf.GradientTape() as tape:
        loss = rate * tf.reduce_sum(inner())
    return tape.gradient(loss, WEIGHT)


FINE = [
    lambda rate, n: WEIGHT * rate,
    lambda rate, n: WEIGHT - rate,
    lambda rate, n: WEIGHT * (rate * 0.1 / 3.0),
    lambda rate, n: WEIGHT if n > 3 else -WEIGHT,
    lambda rate, n: WEIGHT if n / 10 >= 0.3 else -WEIGHT,
    lambda rate, n: WEIGHT * tf.minimum(rate, 0.1),
    lambda rate, n: WEIGHT * tf.cast(n % 3 + 1, tf.float32),
    lambda rate, n: WEIGHT if n // 2 == 0 else -WEIGHT,
    lambda rate, n: inner() * rate,
    lambda rate, n: descended(rate),
    lambda rate, n: tf.cast(WEIGHT, tf.float64) * tf.cast(n, tf.float64),
]
MISUSED = [
    lambda rate, n: WEIGHT if rate >= 0.8 else -WEIGHT,
    lambda rate, n: WEIGHT * tf.cast(int(rate * 100), tf.float32),
    lambda rate, n: WEIGHT * (1.0 - rate),
    lambda rate, n: WEIGHT * rate**2.5,
    lambda rate, n: WEIGHT * tf.exp(rate),
    lambda rate, n: WEIGHT * tf.cast(n * 1_000_003, tf.float32),
    lambda rate, n: WEIGHT / (1.0 - 0.9 ** tf.cast(n, tf.float32)),
    lambda rate, n: inner(rate),  # each number is a trace of its own, which reads the state of Python then
    lambda rate, n: tf.cast(WEIGHT, tf.float64) * tf.cast(rate, tf.float64),
    lambda rate, n: tf.switch_case(tf.cast(WEIGHT[0], tf.int32), [lambda: tf.exp(rate), lambda: tf.constant(1.0)]),
]


def misused(step):
    specs = [tf.TensorSpec((), tf.float32), tf.TensorSpec((), tf.int32)]
    concrete = tf.function(step).get_concrete_function(*specs)
    names = [tensor.op.name for tensor in concrete.inputs if tensor.dtype != tf.resource]
    return number_misused(concrete.graph.as_graph_def(), names)


@pytest.mark.parametrize("step", FINE)
def test_what_rounds_alike_is_allowed(step):
    assert misused(step) is None


@pytest.mark.parametrize("step", MISUSED)
def test_what_python_computes_more_exactly_is_named(step):
    assert misused(step) is not None
