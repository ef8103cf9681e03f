"""A transformer encoder that names the word behind each position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from experiments.zoo import data
from experiments.zoo.training import TrainingStep, classifier

WORDS = 4000
LENGTH = 32
WIDTH = 256
HEADS = 4
LAYERS = 4


@dataclass(frozen=True)
class Shape:
    """Words per sentence, features per word, heads and layers; the feed-forward net's inner layer is 4 x width."""

    length: int = LENGTH
    width: int = WIDTH
    heads: int = HEADS
    layers: int = LAYERS


def transformer(batch: int, rng: np.random.Generator, **shape: int) -> TrainingStep:
    """The encoder of Vaswani et al. 2017, half the base model's width, 4 layers, dropout left out; Adam.

    Word ids int32 [batch, 32] -> logits [batch, 32, 4000], trained to name the word at every position, as a
    masked language model is (Devlin et al. 2019); the betas of Adam are those of the paper's section 5.3.
    shape: the fields of `Shape` that are not the defaults.
    """
    of = Shape(**shape)
    words = keras.Input((of.length,), dtype="int32", name="words")
    x = keras.layers.Embedding(WORDS, of.width, name="embedding")(words) * of.width**0.5 + _positions(of)
    for i in range(1, of.layers + 1):
        x = _layer(x, f"layer{i}", of)
    model = keras.Model(words, keras.layers.Dense(WORDS, name="logits")(x), name="transformer")
    optimizer = keras.optimizers.Adam(3e-4, beta_1=0.9, beta_2=0.98, epsilon=1e-9, name="adam")
    x, y = (data.on_host(data.zipf(rng, WORDS, batch, of.length)) for _ in range(2))
    return classifier(model, optimizer, x, y)


def _positions(of: Shape) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Sines in the even columns and cosines in the odd ones, [length, width] (section 3.5)."""
    angle = np.arange(of.length)[:, None] / 10000.0 ** (np.arange(0, of.width, 2) / of.width)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(of.length, of.width).astype(np.float32)


def _layer(x: Any, name: str, of: Shape) -> Any:
    """Self-attention and a feed-forward net, each with its residual and layer normalisation (section 3.1)."""
    x = keras.layers.LayerNormalization(name=f"{name}_norm1")(x + _attention(x, name, of))
    inner = keras.layers.Dense(4 * of.width, activation="relu", name=f"{name}_inner")(x)
    outer = keras.layers.Dense(of.width, name=f"{name}_outer")(inner)
    return keras.layers.LayerNormalization(name=f"{name}_norm2")(x + outer)


def _attention(x: Any, name: str, of: Shape) -> Any:
    """softmax(Q K' / sqrt(d)) V for each head, joined and projected (equation 1 and section 3.2.2)."""
    parts = ("query", "key", "value")
    q, k, v = (_heads(keras.layers.Dense(of.width, name=f"{name}_{part}")(x), of) for part in parts)
    weights = ops.softmax(ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * (of.width // of.heads) ** -0.5)
    joined = ops.reshape(ops.transpose(ops.matmul(weights, v), (0, 2, 1, 3)), (-1, of.length, of.width))
    return keras.layers.Dense(of.width, name=f"{name}_project")(joined)


def _heads(x: Any, of: Shape) -> Any:
    """[batch, length, width] -> [batch, heads, length, width / heads]."""
    return ops.transpose(ops.reshape(x, (-1, of.length, of.heads, of.width // of.heads)), (0, 2, 1, 3))
