"""The modes in which a training step runs: untouched, or placed by one mapping or another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

    from placer.execute.rewrite import PlacedStep
    from placer.train.variables.replicas import Use


class Untouched:
    """Placer leaves the step alone: the user's function runs on the user's variables."""

    name = "untouched"


UNTOUCHED = Untouched()


@dataclass(frozen=True, eq=False)
class MappedStep:
    """A step under one mapping."""

    devices: tuple[int, ...]  # topology index per op of the captured graph, all devices counted
    order: tuple[str, ...]  # op names, that run one after another where they share a device
    name: str  # who proposed it
    step: PlacedStep
    generation: int  # of the session's devices when it was built
    switch_s: float  # seconds that building it took


@dataclass(frozen=True, eq=False)
class Built(MappedStep):
    """A step that was built and tried, but does not train the live variables yet: `LiveStep.settle` lets it."""

    blank: dict[tuple[int, str], tf.Variable]  # the replicas it lacks, from `Replicas.missing`; emptied by `settle`


@dataclass(frozen=True, eq=False)
class Placed(MappedStep):
    """A step that trains the live variables when it is called."""

    use: Use


Mode = Untouched | Placed
