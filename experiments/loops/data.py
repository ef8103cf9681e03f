"""Batches that are new at every step and the same in every run, and the small networks that learn from them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

ROWS, FEATURES, CLASSES = 8, 12, 4
Batch = tuple[tf.Tensor, tf.Tensor]


def batch(i: int, rows: int = ROWS) -> Batch:
    """Batch number i: [rows, FEATURES] float32, and labels [rows] int64 that depend on them."""
    rng = np.random.default_rng([3, i])
    x = rng.normal(size=(rows, FEATURES)).astype("float32")
    return tf.constant(x), tf.constant((x[:, :CLASSES] + 0.3 * rng.normal(size=(rows, CLASSES))).argmax(1))


def dataset(seed: int = 5) -> tf.data.Dataset:
    """Batches without end, new in every epoch."""
    return tf.data.Dataset.range(2**40).map(lambda i: _drawn(tf.stack([i, seed])))


def _drawn(seeds: Any) -> Batch:
    x = tf.random.stateless_normal((ROWS, FEATURES), seeds)
    return x, tf.argmax(x[:, :CLASSES], axis=1)


def classifier(width: int = 16) -> keras.Model:
    """Two towers that meet, so that there is something to place."""
    inputs = keras.Input((FEATURES,))
    towers = [keras.layers.Dense(width, activation="tanh", name=f"tower{i}")(inputs) for i in range(2)]
    return keras.Model(inputs, keras.layers.Dense(CLASSES, name="logits")(keras.layers.Concatenate()(towers)))


def loss_of() -> keras.losses.Loss:
    """Cross-entropy of logits."""
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
