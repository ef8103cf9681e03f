"""The zoo's networks by name: where each is built, and the sizes that suit one core or a GPU."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

from experiments.zoo.training import TrainingStep
from placer.errors import BadInputError, short

Builder = Callable[[int | None, int], TrainingStep]


NATIVE = "native"
TABLES = re.compile(r"[1-9][0-9]{0,6}MiB")


class ZooNetwork(NamedTuple):
    """Where a network is built, and its sizes: the default, and NAME@native, as published or as a GPU would get it."""

    module: str  # under experiments.zoo.networks, with a function of the network's name
    batch: int
    native_batch: int
    native: Mapping[str, int] = {}  # arguments of the function at native size, besides batch and generator


NETWORKS = {
    "inception_v3": ZooNetwork("vision", 8, 32, {"side": 299}),
    "resnet50": ZooNetwork("vision", 8, 32, {"side": 224}),
    "nasnet_mobile": ZooNetwork("vision", 8, 32, {"side": 224}),
    "mobilenet_v3": ZooNetwork("vision", 16, 64, {"side": 224}),
    "vgg16": ZooNetwork("vision", 8, 32, {"side": 224}),
    "alexnet": ZooNetwork("alexnet", 32, 128, {"side": 227}),
    "towers": ZooNetwork("towers", 32, 64, {"filters": 96}),
    "mnist_softmax": ZooNetwork("mnist", 128, 128),
    "seq2seq_lstm": ZooNetwork("seq2seq", 16, 128, {"units": 1024}),
    "transformer": ZooNetwork("transformer", 8, 32, {"length": 128, "width": 512, "heads": 8, "layers": 6}),
    "moe": ZooNetwork("moe", 512, 4096, {"features": 512, "hidden": 1024}),
    "two_tower": ZooNetwork("two_tower", 1024, 4096, {"tables_mib": 768}),
}
BESIDE = {"wide_mlp": ZooNetwork("wide_mlp", 128, 1024, {"width": 4096})}
"""Networks that are found by name, too, but were never published, and so are left out of figures over the zoo."""
EVERY = NETWORKS | BESIDE


class Size(NamedTuple):
    """A network's batch if none is asked for, and the arguments of its function besides batch and generator."""

    batch: int
    settings: Mapping[str, int]


def names() -> tuple[str, ...]:
    """The zoo's networks, in the order of the documentation; imports no TensorFlow."""
    return tuple(NETWORKS)


def find(name: str) -> Builder:
    """The builder of the network `name` from a batch (None = its own) and a seed. Seed Keras before calling it.

    NAME@native is the network at native size; two_tower@NMiB has tables of N mebibytes in total. Raises BadInputError
    for a name that is not in the zoo.
    """
    network, at, size = name.partition("@")
    if network not in EVERY:
        raise BadInputError(_unknown(network))
    sized = _size(network, size) if at else Size(EVERY[network].batch, {})
    return lambda batch, seed: _build(network, batch or sized.batch, seed, sized.settings)


def _size(network: str, size: str) -> Size:
    found = EVERY[network]
    if size == NATIVE:
        return Size(found.native_batch, found.native)
    if network == "two_tower" and TABLES.fullmatch(size):
        return Size(found.native_batch, {**found.native, "tables_mib": int(size.removesuffix("MiB"))})
    tables = ", or @4096MiB for tables of that size in all" if network == "two_tower" else ""
    raise BadInputError(f"{network} has no size {short(size)}; write {network}@{NATIVE}{tables}.")


def _build(network: str, batch: int, seed: int, settings: Mapping[str, int]) -> TrainingStep:
    import numpy as np

    module = importlib.import_module(f"experiments.zoo.networks.{EVERY[network].module}")
    made = cast(Callable[..., TrainingStep], getattr(module, network))
    return made(batch, np.random.default_rng(seed), **settings)


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, EVERY, n=1, cutoff=0.5)
    advice = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(NETWORKS)}."
    return f"no network {name!r} in the zoo; {advice} Your own goes in as file.py:function or module:function."
