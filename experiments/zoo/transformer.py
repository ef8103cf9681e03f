"""A transformer encoder that names the word behind each position."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from experiments.zoo import data
from experiments.zoo.training import TrainingStep, classifier

WORDS = 4000
LENGTH = 32
WIDTH = 256
INNER = 1024
HEADS = 4
LAYERS = 4


def transformer(batch: int, rng: np.random.Generator) -> TrainingStep:
    """The encoder of Vaswani et al. 2017, half the base model's width, 4 layers, dropout left out; Adam.

    Word ids int32 [batch, 32] -> logits [batch, 32, 4000], trained to name the word at every position, as a
    masked language model is (Devlin et al. 2019); the betas of Adam are those of the paper's section 5.3.
    """
    words = keras.Input((LENGTH,), dtype="int32", name="words")
    x = keras.layers.Embedding(WORDS, WIDTH, name="embedding")(words) * WIDTH**0.5 + _positions()
    for i in range(1, LAYERS + 1):
        x = _layer(x, f"layer{i}")
    model = keras.Model(words, keras.layers.Dense(WORDS, name="logits")(x), name="transformer")
    optimizer = keras.optimizers.Adam(3e-4, beta_1=0.9, beta_2=0.98, epsilon=1e-9, name="adam")
    x, y = (tf.constant(data.zipf(rng, WORDS, batch, LENGTH)) for _ in range(2))
    return classifier(model, optimizer, x, y)


def _positions() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Sines in the even columns and cosines in the odd ones, [LENGTH, WIDTH] (section 3.5)."""
    angle = np.arange(LENGTH)[:, None] / 10000.0 ** (np.arange(0, WIDTH, 2) / WIDTH)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(LENGTH, WIDTH).astype(np.float32)


def _layer(x: Any, name: str) -> Any:
    """Self-attention and a feed-forward net, each with its residual and layer normalisation (section 3.1)."""
    x = keras.layers.LayerNormalization(name=f"{name}_norm1")(x + _attention(x, name))
    inner = keras.layers.Dense(INNER, activation="relu", name=f"{name}_inner")(x)
    outer = keras.layers.Dense(WIDTH, name=f"{name}_outer")(inner)
    return keras.layers.LayerNormalization(name=f"{name}_norm2")(x + outer)


def _attention(x: Any, name: str) -> Any:
    """softmax(Q K' / sqrt(d)) V for each head, joined and projected (equation 1 and section 3.2.2)."""
    q, k, v = (_heads(keras.layers.Dense(WIDTH, name=f"{name}_{part}")(x)) for part in ("query", "key", "value"))
    weights = ops.softmax(ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * (WIDTH // HEADS) ** -0.5)
    joined = ops.reshape(ops.transpose(ops.matmul(weights, v), (0, 2, 1, 3)), (-1, LENGTH, WIDTH))
    return keras.layers.Dense(WIDTH, name=f"{name}_project")(joined)


def _heads(x: Any) -> Any:
    """[batch, LENGTH, WIDTH] -> [batch, HEADS, LENGTH, WIDTH / HEADS]."""
    return ops.transpose(ops.reshape(x, (-1, LENGTH, HEADS, WIDTH // HEADS)), (0, 2, 1, 3))
