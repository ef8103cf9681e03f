"""Files and stores for a coverage-guided fuzzer: valid bytes of each kind, and a function that uses any bytes."""

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

VALID = 0.5  # share of the changed inputs that are made from a valid one


@dataclass(frozen=True)
class Guided:
    """One kind of input, opened. seeds: valid inputs. given: makes an input of any bytes. mutate: changes some bytes.

    refusal: the error that refuses an input in one line.
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
    """Change the bytes after the `first` ones as the seeded generator does: as JSON if they are JSON.

    Half of the time a valid input replaces `data`, because inputs that reached something new are mostly refused early.
    """
    data = rng.choice(seeds) if rng.random() < VALID else data
    head, tail = data[:first], data[first:]
    with suppress(ValueError, RecursionError):
        return head + mutated(tail, rng)
    return head + garbled(tail, rng)


class Kind(NamedTuple):
    """One kind of input. opened: opens it in a separate folder. share: its number of inputs relative to other kinds."""

    opened: Callable[[Path], Guided]
    share: float = 1.0


KINDS = {
    **{name: Kind(partial(_file, kind)) for name, kind in HOSTILE.items() if "planned" not in name},
    **{name: Kind(partial(_store, opened), 0.05) for name, opened in HOSTILE_STORES.items()},  # milliseconds each
}
