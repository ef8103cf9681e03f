"""AlexNet as it was published: two towers of grouped convolutions, one per GPU, which exchange maps at few layers."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from experiments.zoo import data
from experiments.zoo.training import TrainingStep, classifier

SIDE = 127
CLASSES = 1000
HALVES = ("a", "b")


def alexnet(batch: int, rng: np.random.Generator, side: int = SIDE) -> TrainingStep:
    """The two-tower network of Krizhevsky et al. 2012 (figure 2); SGD with momentum 0.9.

    The image is 127x127, not the paper's 224x224 (its layers fit 227x227), and dropout is left out. The towers read
    each other's maps only at conv3, fc6, fc7 and fc8. fc8 is the sum of one matrix product per tower: the same numbers
    as one product over both halves joined.
    """
    image = keras.Input((side, side, 3), name="image")
    x = _each(lambda half, x: _early(half, x), [image, image])
    x = _each(lambda half, x: _late(half, x), _exchange(x, "conv3"))
    for layer in ("fc6", "fc7"):
        x = _each(lambda half, x, layer=layer: _dense(2048, f"{layer}{half}", "relu")(x), _exchange(x, layer))
    x = _each(lambda half, x: _dense(CLASSES, f"fc8{half}", None)(x), x)
    model = keras.Model(image, keras.layers.Add(name="logits")(x), name="alexnet")
    inputs = data.images(rng, batch, side), data.labels(rng, CLASSES, batch)
    return classifier(model, keras.optimizers.SGD(0.01, momentum=0.9, name="sgd"), *inputs)


def _each(layer: Any, inputs: list[Any]) -> list[Any]:
    return [layer(half, x) for half, x in zip(HALVES, inputs, strict=True)]


def _exchange(x: list[Any], name: str) -> list[Any]:
    """Each half joined with the other one's, its own first: two different tensors, so no pass merges them."""
    a, b = x
    join = [keras.layers.Concatenate(name=f"{name}{half}_join") for half in HALVES]
    return [join[0]([a, b]), join[1]([b, a])]


def _early(half: str, x: Any) -> Any:
    """conv1 and conv2 with response normalisation and overlapping pooling (sections 3.3 and 3.4)."""
    x = keras.layers.Conv2D(48, 11, strides=4, activation="relu", name=f"conv1{half}")(x)
    x = keras.layers.MaxPooling2D(3, 2, name=f"pool1{half}")(_normalised(f"norm1{half}")(x))
    x = _conv(128, 5, f"conv2{half}")(x)
    return keras.layers.MaxPooling2D(3, 2, name=f"pool2{half}")(_normalised(f"norm2{half}")(x))


def _late(half: str, x: Any) -> Any:
    """conv3, which sees both halves, conv4, conv5 and the last pooling, flattened."""
    x = _conv(192, 3, f"conv4{half}")(_conv(192, 3, f"conv3{half}")(x))
    x = keras.layers.MaxPooling2D(3, 2, name=f"pool5{half}")(_conv(128, 3, f"conv5{half}")(x))
    return keras.layers.Flatten(name=f"flat{half}")(x)


def _conv(filters: int, side: int, name: str) -> Any:
    return keras.layers.Conv2D(filters, side, padding="same", activation="relu", name=name)


def _dense(units: int, name: str, activation: str | None) -> Any:
    return keras.layers.Dense(units, activation=activation, name=name)


def _normalised(name: str) -> Any:
    """Local response normalisation over 5 neighbouring maps, with the constants of section 3.3."""
    paper = {"depth_radius": 2, "bias": 2.0, "alpha": 1e-4, "beta": 0.75}
    return keras.layers.Lambda(lambda x: tf.nn.local_response_normalization(x, **paper), name=name)
