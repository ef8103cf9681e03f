"""The modes in which a training step runs: untouched, or placed by one mapping or another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placer.execute.rewrite import PlacedStep
    from placer.execute.variable_copies import Held, Place
    from placer.train.variables.replicas import Use

WHOLE = 0  # the plan of splits that divides no op


class Untouched:
    """Placer leaves the step alone: the user's function runs on the user's variables."""

    name = "untouched"


UNTOUCHED = Untouched()


@dataclass(frozen=True)
class Wanted:
    """A mapping to be built."""

    devices: Sequence[int]  # topology index per op of the graph that `plan` gives, all devices counted
    order: Sequence[str]  # op names, that run one after another where they share a device
    name: str  # who proposed it
    plan: int = WHOLE  # number of the plan of splits by which ops are divided


@dataclass(frozen=True, eq=False)
class MappedStep:
    """A step under one mapping."""

    devices: tuple[int, ...]  # topology index per op of the graph that `plan` gives, all devices counted
    order: tuple[str, ...]  # op names, that run one after another where they share a device
    name: str  # who proposed it
    step: PlacedStep
    generation: int  # of the session's devices when it was built
    switch_s: float  # seconds that building it took, its scratch run included
    plan: int = field(default=WHOLE, kw_only=True)  # number of the plan of splits by which ops are divided


@dataclass(frozen=True, eq=False)
class Built(MappedStep):
    """A step that was built and tried, but does not train the live variables yet: `LiveStep.settle` lets it."""

    blank: dict[tuple[int, Place], Held]  # the replicas it lacks, from `Replicas.missing`; emptied by `settle`


@dataclass(frozen=True, eq=False)
class Placed(MappedStep):
    """A step that trains the live variables when it is called."""

    use: Use


Mode = Untouched | Placed
