"""Image classifiers of `keras.applications`: the published networks, unchanged except for the size of the image."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import keras
import numpy as np

from experiments.zoo import data
from experiments.zoo.training import TrainingStep, classifier

CLASSES = 1000


def inception_v3(batch: int, rng: np.random.Generator, side: int = 96) -> TrainingStep:
    """Inception-v3 (Szegedy et al. 2016) at 96x96; SGD with momentum."""
    return _train("inception_v3", keras.applications.InceptionV3, side, _momentum(0.01), batch, rng)


def resnet50(batch: int, rng: np.random.Generator, side: int = 64) -> TrainingStep:
    """ResNet-50 (He et al. 2016) at 64x64; SGD with momentum."""
    return _train("resnet50", keras.applications.ResNet50, side, _momentum(0.01), batch, rng)


def nasnet_mobile(batch: int, rng: np.random.Generator, side: int = 64) -> TrainingStep:
    """NASNet-A mobile (Zoph et al. 2018) at 64x64; SGD with momentum.

    As in Keras, without the auxiliary head and drop-path.
    """
    return _train("nasnet_mobile", keras.applications.NASNetMobile, side, _momentum(0.01), batch, rng)


def mobilenet_v3(batch: int, rng: np.random.Generator, side: int = 96) -> TrainingStep:
    """MobileNetV3-Small (Howard et al. 2019) at 96x96, its last dropout left out; Adam."""
    options = {"include_preprocessing": False, "dropout_rate": 0.0}
    return _train("mobilenet_v3", keras.applications.MobileNetV3Small, side, _adam(1e-3), batch, rng, **options)


def vgg16(batch: int, rng: np.random.Generator, side: int = 32) -> TrainingStep:
    """VGG-16 (Simonyan & Zisserman 2015) at 32x32, dropout left out; SGD with momentum."""
    return _train("vgg16", keras.applications.VGG16, side, _momentum(0.01), batch, rng)


def _train(
    name: str, network: Any, side: int, optimizer: Any, batch: int, rng: np.random.Generator, **options: Any
) -> TrainingStep:
    model = network(weights=None, input_shape=(side, side, 3), classes=CLASSES, classifier_activation=None, **options)
    _name_layers(model)
    x, y = data.images(rng, batch, side), data.labels(rng, CLASSES, batch)
    return classifier(model, optimizer, x, y, name)


def _name_layers(model: Any) -> None:
    """Number the layers within the model.

    Keras numbers unnamed layers over the whole process, so the second InceptionV3 would have other op names.
    """
    seen: Counter[str] = Counter()
    for layer in model.layers:
        stem = re.sub(r"_\d+$", "", layer.name)
        if stem.replace("_", "") == type(layer).__name__.lower():
            layer.name = f"{stem}_{seen[stem]}"
            seen[stem] += 1


def _momentum(learning_rate: float) -> Any:
    return keras.optimizers.SGD(learning_rate, momentum=0.9, name="sgd")


def _adam(learning_rate: float) -> Any:
    return keras.optimizers.Adam(learning_rate, name="adam")
