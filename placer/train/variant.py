"""The step for one signature: one combination of shapes, types and Python arguments."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from placer.execute.rewrite import Template
from placer.trace.capture import Captured
from placer.trace.iterator_inputs import Feeding
from placer.trace.signature import Layout
from placer.train.modes import Placed


@dataclass(eq=False)
class Variant:
    """What is known of one signature since its first call."""

    key: Hashable
    args: Sequence[Any]  # of the first call
    kwargs: dict[str, Any]
    layout: Layout
    calls: int = 0
    last: int = 0  # the call of the step that was the latest of this signature
    compiled: bool = False  # whether the untouched function ran before devices were joined
    is_traced: bool = False  # whether it was tried
    traced: tuple[Any, list[int]] | None = None  # of a plain step, in the state of Python that its key counts
    feeding: Feeding | None = None  # set where the step takes its batches from iterators
    shapes: dict[int, list[Any]] | None = None  # of the batches taken
    refused: bool = False  # whether a signature other than the main one cannot be placed
    captured: Captured | None = None
    template: Template | None = None
    following: tuple[Placed, Placed] | None = None  # the main signature's placed step, and this one's by its mapping
