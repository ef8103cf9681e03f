"""The networks of the bench `spoc`: every family of keras.applications at many sizes, and generated ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice, product

from experiments.benches.bench import EVERY
from placer.errors import BadInputError

Option = tuple[str, int | float | str | bool]
LIGHT, CHEAP = 55_000, 150_000  # pixels of a batch up to which a network, or a small network, is measured in seconds


@dataclass(frozen=True)
class Network:
    """One network to build and measure. kind: a classifier of keras.applications, or a generator of build.py.

    side, batch: of its images; dense chains take vectors as long as they are wide. heavy: slow to build or to run, left
    out if only a part of the networks is measured.
    """

    family: str
    kind: str
    side: int
    batch: int
    options: tuple[Option, ...] = ()
    heavy: bool = False

    @property
    def name(self) -> str:
        """A unique name, usable as a file name."""
        said = [f"{key}{value}" for key, value in self.options]
        return "-".join([self.kind, *said, f"{self.side}px", f"batch{self.batch}"])


@dataclass(frozen=True)
class Base:
    """A classifier of keras.applications, measured in `sizes` sizes. light: pixels of a batch up to which it is not
    heavy.
    """

    family: str
    kind: str
    sizes: int
    options: tuple[Option, ...] = ()
    light: int = LIGHT


SIZES = ((64, 4), (128, 4), (96, 16), (160, 2), (64, 16), (96, 1), (128, 8), (224, 1))
"""Side and batch. Each base begins at another size, so that families differ in more than one thing at a time."""
SMALLEST = {"InceptionV3": 75, "InceptionResNetV2": 75, "Xception": 71}

BASES = (
    Base("vgg", "VGG16", 8, light=20_000), Base("vgg", "VGG19", 8, light=20_000),
    Base("resnet", "ResNet50", 8), Base("resnet", "ResNet101", 6, light=0), Base("resnet", "ResNet152", 4, light=0),
    Base("resnet_v2", "ResNet50V2", 8), Base("resnet_v2", "ResNet101V2", 6, light=0),
    Base("resnet_v2", "ResNet152V2", 4, light=0),
    Base("inception", "InceptionV3", 8), Base("inception_resnet", "InceptionResNetV2", 6, light=20_000),
    Base("xception", "Xception", 8),
    *(Base("mobilenet", "MobileNet", 6, (("alpha", a),), CHEAP) for a in (0.25, 0.5, 0.75, 1.0)),
    *(Base("mobilenet_v2", "MobileNetV2", 5, (("alpha", a),), CHEAP) for a in (0.35, 0.5, 0.75, 1.0, 1.4)),
    *(Base("mobilenet_v3", f"MobileNetV3{size}", 5, options, CHEAP) for size in ("Small", "Large")
      for options in ((("alpha", 0.75),), (), (("minimalistic", True),))),
    Base("densenet", "DenseNet121", 8, light=20_000), Base("densenet", "DenseNet169", 6, light=0),
    Base("densenet", "DenseNet201", 4, light=0),
    Base("nasnet", "NASNetMobile", 8, light=20_000), Base("nasnet", "NASNetLarge", 2, light=0),
    *(Base("efficientnet", f"EfficientNetB{i}", n, light=light)
      for i, (n, light) in enumerate(((7, CHEAP), (6, CHEAP), (5, LIGHT), (5, LIGHT), (4, 0), (3, 0), (2, 0), (2, 0)))),
    *(Base("efficientnet_v2", f"EfficientNetV2B{i}", n, light=light)
      for i, (n, light) in enumerate(((7, CHEAP), (6, CHEAP), (5, LIGHT), (5, LIGHT)))),
    *(Base("efficientnet_v2", f"EfficientNetV2{s}", n, light=0) for s, n in (("S", 4), ("M", 2), ("L", 1))),
    Base("convnext", "ConvNeXtTiny", 7), Base("convnext", "ConvNeXtSmall", 5, light=0),
    *(Base("convnext", f"ConvNeXt{s}", n, light=0) for s, n in (("Base", 4), ("Large", 3), ("XLarge", 1))),
)  # fmt: skip

REFERENCE = Network("reference", "conv_chain", 32, 16, (("filters", 32), ("depth", 6)))
"""Stepped in turn with every network, so that times of busy and of quiet minutes compare."""


def networks() -> tuple[Network, ...]:
    """All networks, family by family, each family from its small networks to its large ones."""
    return (*_applications(), *_generated())


def _applications() -> Iterator[Network]:
    for number, base in enumerate(BASES):
        sizes = islice(cycle(SIZES), number, number + base.sizes)
        for side, batch in sorted(set(sizes), key=lambda size: size[0] ** 2 * size[1]):
            fits = max(side, SMALLEST.get(base.kind, 0))
            yield Network(base.family, base.kind, fits, batch, base.options, fits**2 * batch > base.light)


def _generated() -> Iterator[Network]:
    for width, depth, batch in product((64, 256, 1024), (2, 8, 32), (16, 128, 1024)):
        yield Network("dense_chain", "dense_chain", 1, batch, (("width", width), ("depth", depth)))
    for kind in ("conv_chain", "separable_chain"):
        for filters, depth, (side, batch) in product((8, 32, 96), (4, 12, 32), ((32, 16), (16, 64), (64, 4))):
            yield Network(
                kind, kind, side, batch, (("filters", filters), ("depth", depth)), heavy=depth * filters > 2e3
            )
    for filters, count, depth, (side, batch) in product((16, 48), (2, 4, 8), (2, 6), ((32, 16), (64, 8))):
        options = (("filters", filters), ("branches", count), ("depth", depth))
        yield Network("branches", "branches", side, batch, options)
    for seed, filters, cells, (side, batch) in product(range(8), (16, 48), (3, 6), ((32, 8), (32, 32))):
        options = (("seed", seed), ("filters", filters), ("cells", cells))
        yield Network("cells", "cells", side, batch, options, heavy=filters * cells > 200)


def check_family(name: str) -> None:
    """Raise BadInputError if `name` is neither a family of networks nor EVERY."""
    known = families(networks())
    if name not in (EVERY, *known):
        raise BadInputError(f"--model {name}: no family of networks; give {EVERY}, or {', '.join(known)}.")


def families(among: Sequence[Network]) -> tuple[str, ...]:
    """The families, in the order of the networks."""
    return tuple(dict.fromkeys(network.family for network in among))


def stratified(among: Sequence[Network], count: int) -> tuple[Network, ...]:
    """`count` of the networks that are not heavy: equally many of each family, evenly spread over its networks."""
    light = [network for network in among if not network.heavy]
    of = {family: [n for n in light if n.family == family] for family in families(light)}
    rounds = range(max(map(len, of.values()), default=0))
    drawn = Counter([family for i in rounds for family in of if i < len(of[family])][:count])
    return tuple(network for family, n in drawn.items() for network in evenly(of[family], n))


def evenly(among: Sequence[Network], count: int) -> list[Network]:
    """`count` evenly spaced networks: the middles of `count` equal parts."""
    return [among[(2 * i + 1) * len(among) // (2 * count)] for i in range(count)]
