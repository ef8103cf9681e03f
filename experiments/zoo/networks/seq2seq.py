"""A translator of two unrolled LSTM layers that read a sentence and two that write one."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from experiments.zoo import data
from experiments.zoo.training import TrainingStep, descend, mean_cross_entropy

WORDS = 4000
UNITS = 256
LAYERS = 2
STEPS = 10


def seq2seq_lstm(batch: int, rng: np.random.Generator, units: int = UNITS) -> TrainingStep:
    """Encoder-decoder (Sutskever et al. 2014), the source read backwards, the target taught; Adam.

    Two layers of `units` instead of four of 1,000, and 10 words a sentence; unrolled, so that there are no loops.
    step(source int32 [batch, 10], target int32 [batch, 10]); word 0 starts a target.
    """
    model = _network(units)
    optimizer = keras.optimizers.Adam(1e-3, name="adam")
    optimizer.build(model.trainable_variables)

    def step(source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            so_far = tf.pad(target[:, :-1], [[0, 0], [1, 0]])
            logits = model([tf.reverse(source, [1]), so_far], training=True)
            loss = mean_cross_entropy(target, logits)
        descend(tape, loss, model, optimizer)
        return loss

    example = tuple(data.on_host(data.zipf(rng, WORDS, batch, STEPS)) for _ in range(2))
    return TrainingStep("seq2seq_lstm", step, example, model, optimizer)


def _network(units: int) -> Any:
    """Word ids of source (reversed) and target so far -> logits over the next word [batch, STEPS, WORDS]."""
    source = keras.Input((STEPS,), dtype="int32", name="source")
    so_far = keras.Input((STEPS,), dtype="int32", name="so_far")
    x = keras.layers.Embedding(WORDS, units, name="source_words")(source)
    y = keras.layers.Embedding(WORDS, units, name="target_words")(so_far)
    for i in range(1, LAYERS + 1):
        x, *memory = _lstm(f"encoder{i}", units)(x)
        y, *_ = _lstm(f"decoder{i}", units)(y, initial_state=memory)
    logits = keras.layers.Dense(WORDS, name="logits")(y)
    return keras.Model([source, so_far], logits, name="seq2seq_lstm")


def _lstm(name: str, units: int) -> Any:
    """One layer; the cell is named because Keras numbers unnamed ones over the whole process."""
    cell = keras.layers.LSTMCell(units, name="cell")
    return keras.layers.RNN(cell, return_sequences=True, return_state=True, unroll=True, name=name)
