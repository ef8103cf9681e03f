"""A mixture of experts: heavy dense stacks side by side, weighted by a soft gate."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from experiments.zoo import data
from experiments.zoo.training import TrainingStep, classifier

EXPERTS = 8
FEATURES = 256
HIDDEN = 512
WIDTH = 64
CLASSES = 100


def moe(batch: int, rng: np.random.Generator, features: int = FEATURES, hidden: int = HIDDEN) -> TrainingStep:
    """Eight experts, y = sum_i G(x)_i E_i(x) (Shazeer et al. 2017, equation 1), then one softmax layer; Adam.

    The gate is the paper's softmax gate (equation 2, after Jordan & Jacobs 1994) without its noisy top-k:
    every expert runs, no shape depends on data, and only [batch, 64] floats leave an expert.
    """
    given = keras.Input((features,), name="features")
    gate = keras.layers.Dense(EXPERTS, activation="softmax", use_bias=False, name="gate")(given)
    weighted = [_expert(given, f"expert{i}", hidden) * gate[:, i : i + 1] for i in range(EXPERTS)]
    logits = keras.layers.Dense(CLASSES, name="logits")(keras.layers.Add(name="mix")(weighted))
    model = keras.Model(given, logits, name="moe")
    x, y = data.vectors(rng, batch, features), data.labels(rng, CLASSES, batch)
    return classifier(model, keras.optimizers.Adam(1e-3, name="adam"), x, y)


def _expert(x: Any, name: str, hidden: int) -> Any:
    for i in (1, 2, 3):
        x = keras.layers.Dense(hidden, activation="relu", name=f"{name}_dense{i}")(x)
    return keras.layers.Dense(WIDTH, name=f"{name}_out")(x)
