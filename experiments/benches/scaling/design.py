"""The networks that the bench scaling measures: a seeded design over all their settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from placer.errors import BadInputError

Levels = tuple[str, ...]
T = TypeVar("T")
ACTIVATIONS: Levels = ("relu", "tanh", "gelu")
OPTIMIZERS: Levels = ("sgd", "momentum", "adam")
CLASSES = 10
SIDE, CHANNELS = 20, 3  # of a CNN's images
INPUTS = 576  # of the others
DEVICES = (1, 2, 4)  # workers that share the batch
CHUNKS = (1, 2, 4)  # into which each worker cuts its share of the batch, to take them one after another


@dataclass(frozen=True)
class Range:
    """Whole numbers from low to high, drawn evenly in their logarithm, each a multiple of `unit`.

    Networks are sized in units because kernels work in blocks: a convolution with 17 to 21 filters took as long as one
    with 24, which no smooth formula can describe.
    """

    low: int
    high: int
    unit: int = 1

    def at(self, share: float) -> int:
        """The number at this share, 0 to 1, of the range."""
        edges = (self.low - self.unit / 2) * ((self.high + self.unit / 2) / (self.low - self.unit / 2)) ** share
        return int(min(max(round(edges / self.unit) * self.unit, self.low), self.high))


COMMON: dict[str, Range | Levels] = {"activation": ACTIVATIONS, "optimizer": OPTIMIZERS}
SPACES: dict[str, dict[str, Range | Levels]] = {
    "cnn": {"batch": Range(32, 128, 8), "layers": Range(2, 5), "filters": Range(16, 40, 8),
            "kernel": Range(2, 5), **COMMON},
    "mlp": {"batch": Range(256, 2048, 16), "layers": Range(2, 6), "hidden": Range(192, 768, 16), **COMMON},
    "autoencoder": {"batch": Range(256, 2048, 16), "layers": Range(1, 3), "hidden": Range(192, 768, 16),
                    "code": Range(16, 128, 8), **COMMON},
}  # fmt: skip
"""The settings that vary in each kind of network; devices and chunks vary in all kinds."""


def check_kind(kind: str) -> None:
    """Raise BadInputError for an unknown kind of network."""
    if kind not in SPACES:
        raise BadInputError(f"--model {kind!r} is no kind of network; choose of {', '.join(SPACES)}.")


_SHARING = "devices,workers_per_core,chunks"
FORMS: dict[str, dict[str, tuple[str, str]]] = {
    "cnn": {
        "sum": ("layers,filters,kernel,activation,optimizer", f"batch,{_SHARING}"),
        "joined": ("filters*kernel*layers,activation*filters*layers,optimizer", f"batch,{_SHARING}"),
        "free": ("batch*filters*kernel*layers*devices,activation*batch*filters*layers*devices,"
                 "optimizer*layers*devices*chunks", "workers_per_core"),
    },
    "mlp": {
        "sum": ("layers,hidden,activation,optimizer", f"batch,{_SHARING}"),
        "joined": ("hidden*layers,activation*hidden*layers,optimizer", f"batch,{_SHARING}"),
        "free": ("batch*hidden*layers*devices,activation*batch*hidden*layers*devices,"
                 "optimizer*hidden*layers*devices*chunks", "workers_per_core"),
    },
    "autoencoder": {
        "sum": ("layers,hidden,code,activation,optimizer", f"batch,{_SHARING}"),
        "joined": ("hidden*layers,activation*hidden*layers,hidden*code,optimizer", f"batch,{_SHARING}"),
        "free": ("batch*hidden*layers*devices,activation*batch*hidden*layers*devices,"
                 "optimizer*hidden*layers*devices*chunks", "workers_per_core"),
    },
}  # fmt: skip
"""The candidate forms of each kind, as (intrinsic, extrinsic) columns: the plain form, a form that joins the columns
that multiply, and a form in which batch and devices may scale each term by powers of their own.

More devices than cores bring no more speed, which no power of `devices` alone can express, so `workers_per_core` is a
factor of its own. Chunks repeat work that does not depend on the batch, such as adding up gradients, so the free form
has chunks in that term only. With powers of chunks in each term, it had more constants than the smaller half of the
runs could determine.
"""


@dataclass(frozen=True)
class Config:
    """One network as it is trained.

    settings: from the space of its kind. devices: workers that share the batch, `workers_per_core` of them on a core.
    chunks: into which a worker cuts its share; it takes them one after another and sums their gradients.
    """

    kind: str
    settings: Mapping[str, int | str]
    devices: int
    chunks: int = 1
    workers_per_core: int = 1

    @property
    def columns(self) -> dict[str, int | str]:
        """The columns from which a model predicts the step time."""
        sharing = {"devices": self.devices, "workers_per_core": self.workers_per_core, "chunks": self.chunks}
        return {**self.settings, **sharing}

    @property
    def operations(self) -> float:
        """Floating-point operations of a step, a multiply-add counted as two: forward, and twice that backward."""
        batch, layers, hidden, filters, kernel, code = (
            int(self.settings.get(name, 0)) for name in ("batch", "layers", "hidden", "filters", "kernel", "code")
        )
        products = {
            "cnn": (CHANNELS + (layers - 1) * filters) * filters * SIDE**2 * kernel**2,
            "mlp": (INPUTS + (layers - 1) * hidden + CLASSES) * hidden,
            "autoencoder": 2 * (INPUTS + (layers - 1) * hidden + code) * hidden,
        }[self.kind]
        return 6.0 * batch * products


REFERENCE: dict[str, int | str] = {
    "batch": 64, "layers": 3, "filters": 16, "kernel": 3, "activation": "relu", "optimizer": "sgd",
}  # fmt: skip


def reference(devices: int) -> Config:
    """The network stepped in turn with every other one on the same number of devices, so that machine drift cancels."""
    return Config("cnn", REFERENCE, devices)


def design(kind: str, count: int, cores: int = 2, seed: int = 0) -> list[Config]:
    """`count` networks of a kind, no two alike: a Latin hypercube (McKay et al. 1979) over its space, the devices and
    the chunks. cores: the number of cores that the workers share.

    Returns fewer if a hundred draws do not find `count`.
    """
    from scipy.stats import qmc

    space = SPACES[kind]
    found: dict[tuple[Any, ...], Config] = {}
    for attempt in range(100):
        sampler = qmc.LatinHypercube(d=len(space) + 2, rng=seed + 1000 * attempt)
        for shares in sampler.random(count - len(found)):
            settings = {name: _at(axis, share) for (name, axis), share in zip(space.items(), shares, strict=False)}
            devices, chunks = (_of(levels, s) for levels, s in zip((DEVICES, CHUNKS), shares[-2:], strict=True))
            config = Config(kind, settings, devices, chunks, -(-devices // cores))
            found.setdefault(tuple(config.columns.values()), config)
        if len(found) == count:
            break
    return list(found.values())


def _at(axis: Range | Levels, share: float) -> int | str:
    return axis.at(share) if isinstance(axis, Range) else _of(axis, share)


def _of(levels: Sequence[T], share: float) -> T:
    return levels[min(int(share * len(levels)), len(levels) - 1)]
