"""Steps of every kind, captured and cut in two: the placed step trains as the untouched one does."""

from __future__ import annotations

import random
from typing import ClassVar

import keras
import numpy as np
import pytest
import tensorflow as tf

from placer.execute.rewrite import PlacedStep, Template
from placer.trace.capture import capture

STEPS = 4
X = tf.random.stateless_normal([6, 8], [1, 2])
Y = tf.random.stateless_normal([6, 2], [3, 4])


def place(captured, two_cpus, seed=0):
    """The step with half of its ops, by chance, on the second device; colocation kept."""
    chance = random.Random(seed)
    side = {}
    sides = [side.setdefault(op.colocate or op.name, chance.randrange(2)) for op in captured.graph.ops]
    devices = [two_cpus.tf_name(d) for d in sides]
    assert len(set(devices)) == 2
    return PlacedStep(Template(captured, two_cpus.host), devices)


def dense(*layers, optimizer=None, dtype=None):
    """A step that trains a stack of layers on mean squares, in mixed precision where `dtype` says so."""
    keras.utils.set_random_seed(7)
    tail = keras.layers.Dense(2, dtype="float32")
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, dtype=dtype), *layers, tail])
    optimizer = optimizer or keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
            scaled = optimizer.scale_loss(loss)
        optimizer.apply(tape.gradient(scaled, model.trainable_variables), model.trainable_variables)
        return loss

    return step


class Lion(keras.optimizers.Optimizer):
    """An optimizer of the user's own: the sign of a running mean."""

    def build(self, variables):
        super().build(variables)
        self.means = [self.add_variable_from_reference(v, "mean") for v in variables]

    def update_step(self, gradient, variable, learning_rate):
        mean = self.means[self._get_variable_index(variable)]
        self.assign(mean, 0.9 * mean + 0.1 * gradient)
        self.assign_sub(variable, 0.01 * keras.ops.sign(mean))


def with_metrics():
    step, mean, mae = dense(), keras.metrics.Mean(), keras.metrics.MeanAbsoluteError()

    def measured(x, y):
        loss = step(x, y)
        mean.update_state(loss)
        mae.update_state(y, x[:, :2])
        return {"loss": loss, "mean": mean.result(), "mae": mae.result(), "nothing": None}

    return measured


def lstm():
    keras.utils.set_random_seed(7)
    layers = [keras.layers.Reshape((4, 2)), keras.layers.Bidirectional(keras.layers.LSTM(3))]
    return dense(*layers)


def generator():
    numbers, weight = tf.random.Generator.from_seed(5), tf.Variable(tf.ones([8, 2]))

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(x @ weight + numbers.normal([6, 2]) - y))
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        return loss

    return step


def stateful_random():
    weight = tf.Variable(tf.ones([8, 2]))

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(x @ weight + tf.random.normal([6, 2], seed=3) - y))
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        return loss

    tf.random.set_seed(11)
    return step


def not_built():
    """Variables and slots are made while the step is traced."""
    keras.utils.set_random_seed(7)
    layer, optimizer = keras.layers.Dense(2), keras.optimizers.Adam(0.1)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(layer(x) - y))
        optimizer.apply(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables)
        return loss

    return step


def nested():
    inner = tf.function(dense(), input_signature=[tf.TensorSpec([None, 8]), tf.TensorSpec([None, 2])])

    def step(x, y):
        first = inner(x, y)
        return first, inner(x, y), x

    return step


class Trainer:
    """A step that is a method."""

    alive: ClassVar[list[Trainer]] = []

    def __init__(self):
        self.inner = dense()
        self.alive.append(self)

    @tf.function
    def step(self, x, y):
        return self.inner(x, y)


def scaled_loss():
    keras.utils.set_random_seed(3)  # of the layer that is made before the others
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=2.0**40)
    return dense(keras.layers.Dense(8, dtype="mixed_float16"), optimizer=optimizer, dtype="mixed_float16")


STEPS_OF = {
    "dense": dense,
    "dropout": lambda: dense(keras.layers.Dropout(0.5, seed=3)),
    "batch_norm": lambda: dense(keras.layers.BatchNormalization()),
    "adam": lambda: dense(optimizer=keras.optimizers.Adam(0.1, use_ema=True)),
    "schedule": lambda: dense(optimizer=keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 3))),
    "clipped": lambda: dense(optimizer=keras.optimizers.AdamW(0.1, global_clipnorm=0.5)),
    "accumulated": lambda: dense(optimizer=keras.optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=2)),
    "custom_optimizer": lambda: dense(optimizer=Lion(learning_rate=0.1)),
    "mixed_precision": scaled_loss,
    "metrics": with_metrics,
    "bidirectional_lstm": lstm,
    "generator": generator,
    "stateful_random": stateful_random,
    "not_built": not_built,
    "nested": nested,
    "method": lambda: Trainer().step,
}


@pytest.mark.some(5)
@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.slow) if k == "bidirectional_lstm" else k for k in STEPS_OF]
)
def test_a_placed_step_trains_like_the_untouched_one(two_cpus, kind):
    untouched = tf.function(STEPS_OF[kind]())
    expected = [untouched(X, Y) for _ in range(STEPS)]
    captured = capture(STEPS_OF[kind](), (X, Y), kind)
    placed = place(captured, two_cpus)
    seen = [captured.pack(placed.run_flat(captured.flat_inputs((X, Y)))) for _ in range(STEPS)]
    assert not captured.host_ops
    tf.nest.assert_same_structure(seen, expected)
    for ours, theirs in zip(tf.nest.flatten(seen), tf.nest.flatten(expected), strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            np.testing.assert_allclose(ours, theirs, rtol=1e-5)
