"""Four heavy convolution towers side by side, which meet only at the last layer."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from experiments.zoo import data
from experiments.zoo.training import TrainingStep, classifier

SIDE = 64
TOWERS = 4
FILTERS = 24
CLASSES = 10


def towers(batch: int, rng: np.random.Generator, filters: int = FILTERS) -> TrainingStep:
    """Four towers of two 3x3 convolutions on one 64x64 image, pooled, joined, softmax; momentum.

    Each tower has its own weights, like a column of Ciresan et al. 2012; only 4 x [batch, filters] floats meet.
    """
    image = keras.Input((SIDE, SIDE, 3), name="image")
    joined = keras.layers.Concatenate(name="join")([_tower(image, f"tower{i}", filters) for i in range(TOWERS)])
    logits = keras.layers.Dense(CLASSES, name="logits")(joined)
    model = keras.Model(image, logits, name="towers")
    x, y = data.images(rng, batch, SIDE), data.labels(rng, CLASSES, batch)
    return classifier(model, keras.optimizers.SGD(0.05, momentum=0.9, name="sgd"), x, y)


def _tower(image: Any, name: str, filters: int) -> Any:
    x = image
    for i in (1, 2):
        x = keras.layers.Conv2D(filters, 3, padding="same", activation="relu", name=f"{name}_conv{i}")(x)
    return keras.layers.GlobalAveragePooling2D(name=f"{name}_pool")(x)
