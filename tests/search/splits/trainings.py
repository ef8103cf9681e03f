"""Trainings that tests divide, and how far what they did is from what the whole step does."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from placer.trace.capture import capture


def convolutional(batch):
    """Batch normalisation, a depthwise and a transposed convolution, pooling, dropout, a flattened dense layer."""
    x = inputs = keras.Input((12, 12, 3))
    x = keras.layers.Conv2D(8, 3, padding="same")(x)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Activation("relu")(x)
    x = keras.layers.DepthwiseConv2D(3, strides=2, padding="same", depth_multiplier=2)(x)
    x = keras.layers.MaxPooling2D(2)(x)
    x = keras.layers.Conv2DTranspose(6, 3, strides=2, padding="same", activation="relu")(x)
    x = keras.layers.AveragePooling2D(2)(x)
    x = keras.layers.Dropout(0.3, seed=1)(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(32, activation="relu")(x)
    model = keras.Model(inputs, keras.layers.Dense(5)(x))
    return model, tf.random.stateless_normal([batch, 12, 12, 3], [1, 2])


def dense(batch):
    """Dense layers with weights larger than what they work on."""
    model = keras.Sequential([keras.Input((24,)), *(keras.layers.Dense(n, "relu") for n in (32, 32, 31)),
                              keras.layers.Dense(5)])  # fmt: skip
    return model, tf.random.stateless_normal([batch, 24], [1, 2])


def attention(batch):
    """An embedding, attention, layer normalisation."""
    inputs = keras.Input((6,), dtype="int32")
    x = keras.layers.Embedding(20, 8)(inputs)
    x = keras.layers.LayerNormalization()(x + keras.layers.MultiHeadAttention(2, 4)(x, x))
    x = keras.layers.Dense(16, "gelu")(x)
    model = keras.Model(inputs, keras.layers.Dense(5)(keras.layers.GlobalAveragePooling1D()(x)))
    return model, tf.constant(np.arange(6 * batch).reshape(batch, 6) % 20, tf.int32)


def captured_training(make, batch, optimizer=None):
    """(captured step of the network that `make` gives, its flat inputs): a step changes weights by their gradients, or
    as an optimizer does.
    """
    keras.utils.set_random_seed(3)
    model, x = make(batch)
    optimizer = optimizer or keras.optimizers.SGD(1.0, momentum=0.5)
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables))
        return loss

    example = (x, tf.constant(np.arange(batch) % 5))
    captured = capture(step, example, make.__name__)
    return captured, captured.flat_inputs(example)


def apart(outcome, placed, captured):
    """The largest difference of a variable's change, relative to the change of all variables together."""
    after = captured.joined({name: variable.numpy() for name, variable in placed.variables.items()})
    assert after.keys() == outcome.after.keys()
    change = {name: value - outcome.before[name] for name, value in outcome.after.items()}
    whole = np.sqrt(sum(np.sum(np.square(value, dtype=np.float64)) for value in change.values()))
    return (
        max(np.linalg.norm((after[name] - value).astype(np.float64)) for name, value in outcome.after.items()) / whole
    )
