"""A single softmax layer on digits: the smallest network, which gains nothing from several devices."""

from __future__ import annotations

import keras
import numpy as np

from experiments.zoo import data
from experiments.zoo.training import TrainingStep, classifier


def mnist_softmax(batch: int, rng: np.random.Generator) -> TrainingStep:
    """784 pixels -> 10 digits, softmax regression (LeCun et al. 1998, the linear classifier), plain SGD."""
    pixels = keras.Input((784,), name="pixels")
    logits = keras.layers.Dense(10, name="logits")(pixels)
    model = keras.Model(pixels, logits, name="mnist_softmax")
    x, y = data.vectors(rng, batch, 784), data.labels(rng, 10, batch)
    return classifier(model, keras.optimizers.SGD(0.1, name="sgd"), x, y)
