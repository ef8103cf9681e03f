"""A recommender of two towers, users and items, with large embedding tables; they meet in one dot product."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from experiments.zoo import data
from experiments.zoo.training import TrainingStep, descend, mean_cross_entropy

ROWS = 200_000
TABLES = 3
EMBEDDED = 64
HISTORY = 20
LAYERS = (1024, 1024, 512)
OUT = 64
TEMPERATURE = 0.1


class Table(keras.layers.Layer):  # type: ignore[misc]
    """An embedding table whose rows are gathered straight from the variable.

    `keras.layers.Embedding` reads the whole table and then gathers: an edge of 51 MB in the graph. This layer's
    edge has only the rows. With Keras's layer, the step was 7 % slower on one core.
    """

    def __init__(self, rows: int, name: str) -> None:
        super().__init__(name=name)
        self.table = self.add_weight((rows, EMBEDDED), "uniform", name="table")

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        """Ids int32 [...] -> rows float32 [..., EMBEDDED]; the gradient is sparse (IndexedSlices)."""
        return tf.gather(self.table.value, ids)

    def compute_output_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """The shape of the ids with EMBEDDED behind it."""
        return (*shape, EMBEDDED)


def two_tower(batch: int, rng: np.random.Generator, tables_mib: int | None = None) -> TrainingStep:
    """Retrieval with two towers (Covington et al. 2016; Yi et al. 2019) and three tables of 51 MB; plain SGD.

    The loss is Yi's in-batch softmax: each user's item against the batch's other items, each logit less the
    log of its item's sampling probability (section 3), here the known one. In Keras 3 momentum and Adam touch
    every row of a table at every step; plain SGD updates the looked-up rows alone.
    tables_mib: mebibytes of the three together. step(user [batch], history [batch, 20], item [batch], log_q [batch]);
    ids int32, log_q float32.
    """
    rows = ROWS if tables_mib is None else rows_of(tables_mib)
    model = _network(rows)
    optimizer = keras.optimizers.SGD(0.05, name="sgd")
    optimizer.build(model.trainable_variables)

    def step(user: tf.Tensor, history: tf.Tensor, item: tf.Tensor, log_q: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            u, v = model([user, history, item], training=True)
            logits = tf.matmul(u, v, transpose_b=True) / TEMPERATURE - log_q
            loss = mean_cross_entropy(tf.range(tf.shape(logits)[0]), logits)
        descend(tape, loss, model, optimizer)
        return loss

    return TrainingStep("two_tower", step, _example(batch, rng, rows), model, optimizer)


def rows_of(tables_mib: int) -> int:
    """The number of rows of each of the three tables."""
    return tables_mib * 2**20 // (TABLES * EMBEDDED * 4)


def _example(batch: int, rng: np.random.Generator, rows: int) -> tuple[tf.Tensor, ...]:
    item = data.zipf(rng, rows, batch)
    log_q = np.log(np.log1p(1.0 / (item + 1.0)) / np.log(rows + 1.0)).astype(np.float32)
    history = data.on_host(data.zipf(rng, rows, batch, HISTORY))
    return data.labels(rng, rows, batch), history, data.on_host(item), data.on_host(log_q)


def _network(rows: int) -> Any:
    """User id, ids of watched items and candidate item -> two unit vectors [batch, OUT]."""
    user = keras.Input((), dtype="int32", name="user")
    history = keras.Input((HISTORY,), dtype="int32", name="history")
    item = keras.Input((), dtype="int32", name="item")
    watched = keras.ops.mean(Table(rows, "history_table")(history), axis=1)
    joined = keras.layers.Concatenate(name="user_join")([Table(rows, "user_table")(user), watched])
    u, v = _tower(joined, "user"), _tower(Table(rows, "item_table")(item), "item")
    return keras.Model([user, history, item], [u, v], name="two_tower")


def _tower(x: Any, name: str) -> Any:
    for i, units in enumerate(LAYERS, 1):
        x = keras.layers.Dense(units, activation="relu", name=f"{name}_dense{i}")(x)
    return keras.layers.UnitNormalization(name=f"{name}_unit")(keras.layers.Dense(OUT, name=f"{name}_out")(x))
