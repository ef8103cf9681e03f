"""What a coverage-guided fuzzer is given of each kind of file and store: valid bytes, and what uses any others."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from experiments.fuzz.files import HOSTILE, HostileFile, Mutate
from experiments.fuzz.judge import Input
from experiments.fuzz.mutations import garbled, mutated
from experiments.fuzz.stores import HOSTILE_STORES, HostileStore
from placer.errors import BadInputError, PlacerError

VALID = 0.5  # share of the changed ones that are changed from a valid one


@dataclass(frozen=True)
class Guided:
    """One kind of input, opened. seeds: valid ones. given: what uses any bytes. mutate: changes some bytes.

    refusal: what refuses one in one line.
    """

    seeds: Sequence[bytes]
    given: Callable[[bytes], Input]
    mutate: Mutate
    refusal: type[PlacerError] = BadInputError


def _file(kind: HostileFile, folder: Path) -> Guided:
    valid, given = kind.opened(folder)
    return Guided([valid], given, partial(_changed, [valid], 0))


def _store(opened: Callable[[Path], HostileStore], folder: Path) -> Guided:
    store = opened(folder)
    seeds = store.seeds()
    return Guided(seeds, store.given, partial(_changed, seeds, 2), PlacerError)


def _changed(seeds: Sequence[bytes], first: int, data: bytes, rng: random.Random) -> bytes:
    """What lies behind the first bytes changed as the seeded generator changes it: as JSON where it is some.

    Half of the time `data` is a valid one instead, because what reached something new is mostly refused early.
    """
    data = rng.choice(seeds) if rng.random() < VALID else data
    head, tail = data[:first], data[first:]
    with suppress(ValueError, RecursionError):
        return head + mutated(tail, rng)
    return head + garbled(tail, rng)


class Kind(NamedTuple):
    """What opens one kind of input in a folder of its own, and how many of it are tried where 1 of another is."""

    opened: Callable[[Path], Guided]
    share: float = 1.0


KINDS = {
    **{name: Kind(partial(_file, kind)) for name, kind in HOSTILE.items() if "planned" not in name},
    **{name: Kind(partial(_store, opened), 0.05) for name, opened in HOSTILE_STORES.items()},  # milliseconds each
}
