"""A step that is moved from mapping to mapping trains as if it had been left where it was."""

from __future__ import annotations

import contextlib
import threading
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from placer.errors import BadInputError
from placer.site import Site
from placer.watch import unwatched

UNTOUCHED_STEPS, STEPS = 3, 55


def batches(count, rows=8, seed=3):
    rng = np.random.default_rng(seed)
    return [
        (tf.constant(rng.normal(size=(rows, 6)), tf.float32), tf.constant(rng.integers(0, 3, rows)))
        for _ in range(count)
    ]


def network(*layers):
    inputs = keras.Input((6,))
    left = keras.layers.Dense(8, activation="relu")(inputs)
    right = keras.layers.Dense(8, activation="tanh")(inputs)
    found = keras.layers.Concatenate()([left, right])
    for layer in layers:
        found = layer(found)
    return keras.Model(inputs, keras.layers.Dense(3, dtype="float32")(found))


LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def trained(model, optimizer):
    optimizer.build(model.trainable_variables)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = LOSS(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return step, [*model.variables, *optimizer.variables]


def momentum():
    return trained(network(), keras.optimizers.SGD(0.1, momentum=0.9))


def adam():
    return trained(network(), keras.optimizers.Adam(0.01))


def batch_norm():
    return trained(network(keras.layers.BatchNormalization()), keras.optimizers.SGD(0.1, momentum=0.9))


def dropout():
    return trained(network(keras.layers.Dropout(0.3, seed=4)), keras.optimizers.SGD(0.1))


def accumulated():
    return trained(network(), keras.optimizers.Adam(0.01, gradient_accumulation_steps=3))


def mixed():
    policy = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy("mixed_float16")
    try:
        model = network()
    finally:
        keras.mixed_precision.set_dtype_policy(policy)
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    optimizer.build(model.trainable_variables)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = LOSS(y, model(x, training=True))
            scaled = optimizer.scale_loss(loss)
        optimizer.apply(tape.gradient(scaled, model.trainable_variables), model.trainable_variables)
        return loss

    return step, [*model.variables, *optimizer.variables]


def own_optimizer():
    weights = [tf.Variable(tf.random.stateless_normal([6, 3], [i, 2])) for i in range(2)]
    speeds = [tf.Variable(tf.zeros([6, 3])) for _ in weights]
    count = tf.Variable(0, dtype=tf.int64)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = LOSS(y, x @ weights[0] + tf.tanh(x @ weights[1]))
        count.assign_add(1)
        for weight, speed, gradient in zip(weights, speeds, tape.gradient(loss, weights), strict=True):
            speed.assign(0.9 * speed - gradient / tf.cast(count, tf.float32))
            weight.assign_add(0.1 * speed)
        return loss

    return step, [*weights, *speeds, count]


def with_metric():
    step, variables = momentum()
    mean = keras.metrics.Mean()

    def measured(x, y):
        loss = step(x, y)
        mean.update_state(loss)
        return {"loss": loss, "mean": mean.result(), "nothing": None}

    return measured, [*variables, *mean.variables]


KINDS = [momentum, adam, batch_norm, dropout, accumulated, mixed, own_optimizer, with_metric]


def flat(outputs):
    return [t.numpy() for t in tf.nest.flatten(outputs) if t is not None]


@pytest.fixture
def run(two_cpus, live_hand):
    """(what all steps returned, the variables afterwards) of a step placed after three, then moved where `moves`."""

    def run(make, moves, steps=STEPS, between=lambda i, hand, variables: None, wrap=lambda step: step):
        with by_hand(live_hand, make, wrap) as (hand, variables):
            returned = []
            for i, batch in enumerate(batches(steps)):
                if i == UNTOUCHED_STEPS:
                    hand.place()
                elif i > UNTOUCHED_STEPS and moves:
                    hand.move()
                between(i, hand, variables)
                returned.append(flat(hand(*batch)))
            assert hand.is_placed and (hand.moves > 50) == moves
            return returned, [v.numpy() for v in variables]

    return run


@contextlib.contextmanager
def by_hand(live_hand, make, wrap=lambda step: step, site=None):
    """(a fresh live step, its variables); the same values every time."""
    keras.utils.set_random_seed(11)
    step, variables = make()
    hand = live_hand(wrap(step), site=site)
    try:
        yield hand, [v if isinstance(v, tf.Variable) else v.value for v in variables]
    finally:
        hand.close()


def same(one, other):
    for a, b in zip(one[0], other[0], strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(one[1], other[1], strict=True):
        np.testing.assert_array_equal(a, b)
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_fifty_moves_change_no_bit(run, kind):
    assert same(run(kind, moves=True), run(kind, moves=False))
