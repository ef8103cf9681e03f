"""Which network the zoo's names mean: where it is built and the batch that suits one core."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from typing import NamedTuple, cast

from experiments.zoo.training import TrainingStep
from placer.errors import BadInputError

Builder = Callable[[int | None, int], TrainingStep]


class Entry(NamedTuple):
    """The module under `experiments.zoo` with a function of the network's name, and the default batch."""

    module: str
    batch: int


NETWORKS = {
    "inception_v3": Entry("vision", 8),
    "resnet50": Entry("vision", 8),
    "nasnet_mobile": Entry("vision", 8),
    "mobilenet_v3": Entry("vision", 16),
    "vgg16": Entry("vision", 8),
    "alexnet": Entry("alexnet", 32),
    "towers": Entry("towers", 32),
    "mnist_softmax": Entry("mnist", 128),
    "seq2seq_lstm": Entry("seq2seq", 16),
    "transformer": Entry("transformer", 8),
    "moe": Entry("moe", 512),
    "two_tower": Entry("two_tower", 1024),
}


def names() -> tuple[str, ...]:
    """The zoo's networks, in the order of the documentation; imports no TensorFlow."""
    return tuple(NETWORKS)


def find(name: str) -> Builder:
    """What builds the network `name` from a batch (None = its own) and a seed; Keras must be seeded by then.

    Raises BadInputError for a name that is not in the zoo.
    """
    if name not in NETWORKS:
        raise BadInputError(_unknown(name))
    return lambda batch, seed: _build(name, batch or NETWORKS[name].batch, seed)


def _build(name: str, batch: int, seed: int) -> TrainingStep:
    import numpy as np

    module = importlib.import_module(f"experiments.zoo.{NETWORKS[name].module}")
    network = cast(Callable[..., TrainingStep], getattr(module, name))
    return network(batch, np.random.default_rng(seed))


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, NETWORKS, n=1, cutoff=0.5)
    advice = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(NETWORKS)}."
    return f"no network {name!r} in the zoo; {advice} Your own goes in as file.py:function or module:function."
