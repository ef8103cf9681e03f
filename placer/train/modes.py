"""The ways to run a training step: untouched, or placed by one mapping or another."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

    from placer.execute.rewrite import PlacedStep
    from placer.train.replicas import Use


class Untouched:
    """The way a step runs that Placer leaves alone: the caller's function, the caller's variables."""

    name = "untouched"


UNTOUCHED = Untouched()


@dataclass(eq=False)
class Placed:
    """The way a step runs under one mapping. devices: topology index per op of the captured graph, all devices counted.

    name: who proposed it. switch_s: seconds that building it took.
    """

    devices: tuple[int, ...]
    order: tuple[str, ...]
    name: str
    step: PlacedStep
    generation: int
    switch_s: float = 0.0
    made: dict[tuple[int, str], tf.Variable] = field(default_factory=dict)
    use: Use | None = None


Way = Untouched | Placed
