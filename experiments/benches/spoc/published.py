"""Parameters and multiply-adds of well-known networks, against Keras's own count and against published figures."""

from __future__ import annotations

from typing import NamedTuple

from experiments.benches.bench import Facts
from experiments.benches.spoc.networks import Network
from experiments.zoo.applications import SIDES

WITHIN = 0.02


class Figure(NamedTuple):
    """Published multiply-adds of one image at native size. counts: what else the figure counts, or leaves out."""

    multiply_adds: float
    source: str
    counts: str = ""


HE = "He et al. 2016, table 1 and section 4.1"
ZOPH = "Zoph et al. 2018, tables 2 and 3"
TORCHVISION = "torchvision model metadata"
PUBLISHED = {
    "VGG16": Figure(15.3e9, HE, "convolutions only"),
    "VGG19": Figure(19.6e9, HE),
    "ResNet50": Figure(3.8e9, HE),
    "ResNet101": Figure(7.6e9, HE),
    "ResNet152": Figure(11.3e9, HE),
    "InceptionV3": Figure(5.72e9, ZOPH),
    "Xception": Figure(8.38e9, ZOPH),
    "MobileNet": Figure(569e6, "Howard et al. 2017, table 8"),
    "MobileNetV2": Figure(300e6, "Sandler et al. 2018, table 4"),
    "DenseNet121": Figure(2.834e9, TORCHVISION),
    "ConvNeXtTiny": Figure(4.5e9, "Liu et al. 2022, table 1"),
    "NASNetMobile": Figure(564e6, ZOPH),
    "EfficientNetB0": Figure(390e6, "Tan & Le 2019, table 2"),
}
"""Papers say FLOPs or Mult-Adds and mean multiply-adds; they round to two or three digits."""


def native(kind: str) -> Network:
    """The network at the size for which it was published, with one image."""
    return Network("published", kind, SIDES[kind], 1)


def judged(kind: str, counted: Facts) -> Facts:
    """The counts of this network beside the published figure."""
    if "skipped" in counted:
        return counted
    figure = PUBLISHED[kind]
    off = counted["multiply_adds"] / figure.multiply_adds - 1
    return {
        **counted,
        "published": figure.multiply_adds,
        "source": figure.source,
        "counts": figure.counts,
        "off": off,
        "within": abs(off) <= WITHIN,
        "exact": counted["parameters"] == counted["count_params"],
    }
