"""A wide multi-layer perceptron: one chain of heavy matrix products, which no mapping of whole ops can share well."""

from __future__ import annotations

import keras
import numpy as np

from experiments.zoo import data
from experiments.zoo.training import TrainingStep, classifier

FEATURES = 1024
WIDTH = 2048
LAYERS = 4
CLASSES = 100


def wide_mlp(batch: int, rng: np.random.Generator, width: int = WIDTH) -> TrainingStep:
    """1024 features -> four layers of `width` units with ReLU -> 100 classes; Adam."""
    x = given = keras.Input((FEATURES,), name="features")
    for i in range(1, LAYERS + 1):
        x = keras.layers.Dense(width, activation="relu", name=f"dense{i}")(x)
    model = keras.Model(given, keras.layers.Dense(CLASSES, name="logits")(x), name="wide_mlp")
    x, y = data.vectors(rng, batch, FEATURES), data.labels(rng, CLASSES, batch)
    return classifier(model, keras.optimizers.Adam(1e-3, name="adam"), x, y)
