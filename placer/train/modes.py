"""The modes in which a training step runs: untouched, or placed by one mapping or another."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

    from placer.execute.rewrite import PlacedStep
    from placer.train.replicas import Use


class Untouched:
    """Placer leaves the step alone: the user's function runs on the user's variables."""

    name = "untouched"


UNTOUCHED = Untouched()


@dataclass(eq=False)
class Placed:
    """The step runs under one mapping."""

    devices: tuple[int, ...]  # topology index per op of the captured graph, all devices counted
    order: tuple[str, ...]  # op names, that run one after another where they share a device
    name: str  # who proposed it
    step: PlacedStep
    generation: int  # of the session's devices when it was built
    switch_s: float = 0.0  # seconds that building it took
    made: dict[tuple[int, str], tf.Variable] = field(default_factory=dict)  # blank replicas that `use` will take
    use: Use | None = None  # set by `LiveStep.settle`


Mode = Untouched | Placed
