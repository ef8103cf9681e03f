"""The classifiers of `keras.applications`, untrained: `keras:ResNet50`, or `keras:ResNet50@96` for images of 96x96."""

from __future__ import annotations

import difflib
from typing import Any

from experiments.zoo.catalogue import Builder
from experiments.zoo.training import TrainingStep
from placer.errors import BadInputError, one_line, short

PREFIX = "keras:"
CLASSES = 1000
BATCH = 1  # figures are published for one image
SIDES = {
    **dict.fromkeys(("ConvNeXtTiny", "ConvNeXtSmall", "ConvNeXtBase", "ConvNeXtLarge", "ConvNeXtXLarge"), 224),
    **dict.fromkeys(("DenseNet121", "DenseNet169", "DenseNet201"), 224),
    "EfficientNetB0": 224, "EfficientNetB1": 240, "EfficientNetB2": 260, "EfficientNetB3": 300,
    "EfficientNetB4": 380, "EfficientNetB5": 456, "EfficientNetB6": 528, "EfficientNetB7": 600,
    "EfficientNetV2B0": 224, "EfficientNetV2B1": 240, "EfficientNetV2B2": 260, "EfficientNetV2B3": 300,
    "EfficientNetV2S": 384, "EfficientNetV2M": 480, "EfficientNetV2L": 480,
    **dict.fromkeys(("InceptionV3", "InceptionResNetV2", "Xception"), 299),
    **dict.fromkeys(("MobileNet", "MobileNetV2", "MobileNetV3Small", "MobileNetV3Large"), 224),
    "NASNetMobile": 224, "NASNetLarge": 331,
    **dict.fromkeys(("ResNet50", "ResNet101", "ResNet152", "ResNet50V2", "ResNet101V2", "ResNet152V2"), 224),
    **dict.fromkeys(("VGG16", "VGG19"), 224),
}  # fmt: skip
"""Every classifier, with the side of the images it was published for, in pixels."""


def find(name: str) -> Builder:
    """The builder of `keras:NAME` or `keras:NAME@SIDE`, trained by SGD. Raises BadInputError for a bad name or side."""
    network, _, side = name.removeprefix(PREFIX).partition("@")
    if network not in SIDES:
        near = difflib.get_close_matches(network, SIDES, n=1, cutoff=0.5)
        advice = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(SIDES)}."
        raise BadInputError(f"keras.applications has no classifier {short(network)}; {advice}")
    if side and not (side.isascii() and side.isdigit() and len(side) < 5):
        raise BadInputError(f"{short(name)}: the side of the images is {short(side)}; give pixels, as in @96.")
    pixels = int(side) if side else SIDES[network]
    return lambda batch, seed: _training(name, network, pixels, batch or BATCH, seed)


def model(network: str, side: int, **options: Any) -> Any:
    """The Keras model of `network` from images of side x side to logits. Raises BadInputError if Keras refuses."""
    import keras

    try:
        return getattr(keras.applications, network)(
            weights=None, input_shape=(side, side, 3), classes=CLASSES, classifier_activation=None, **options
        )
    except ValueError as error:
        raise BadInputError(f"{network} at {side}x{side}: {one_line(str(error))}") from error


def _training(name: str, network: str, side: int, batch: int, seed: int) -> TrainingStep:
    import keras
    import numpy as np

    from experiments.zoo import data
    from experiments.zoo.training import classifier

    rng = np.random.default_rng(seed)
    x, y = data.images(rng, batch, side), data.labels(rng, CLASSES, batch)
    return classifier(model(network, side), keras.optimizers.SGD(0.01, name="sgd"), x, y, name)
