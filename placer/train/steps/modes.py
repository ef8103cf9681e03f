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

    op_devices: Sequence[int]  # topology index of each op of the graph that `plan` gives; lost devices are counted, too
    order: Sequence[str]  # op names; those that share a device run one after another in this order
    name: str  # what proposed the mapping
    plan: int = WHOLE  # number of the plan of splits that divides ops


@dataclass(frozen=True, eq=False)
class MappedStep:
    """A step under one mapping."""

    op_devices: tuple[int, ...]  # as in `Wanted`
    order: tuple[str, ...]  # as in `Wanted`
    name: str  # what proposed the mapping
    step: PlacedStep
    generation: int  # of the session's devices when it was built
    switch_s: float  # seconds that building it took, its scratch run included
    plan: int = field(default=WHOLE, kw_only=True)  # number of the plan of splits that divides ops


@dataclass(frozen=True, eq=False)
class Built(MappedStep):
    """A step that was built, but does not train the live variables until `LiveStep.settle` makes it Placed."""

    blank: dict[tuple[int, Place], Held]  # replicas that the step lacks, from `Replicas.missing`; emptied by `settle`


@dataclass(frozen=True, eq=False)
class Placed(MappedStep):
    """A step that trains the live variables when it is called."""

    use: Use


Mode = Untouched | Placed
