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
    """What is known of a signature since its first call, with `args` and `kwargs`.

    compiled: whether the untouched function ran before devices were joined. feeding: set where iterators are taken from
    for the step; shapes: of what was taken. refused: whether it cannot be placed, other than the main one. placed: of
    another signature than the main one, what follows the main one's mapping.
    """

    key: Hashable
    args: Sequence[Any]
    kwargs: dict[str, Any]
    layout: Layout
    calls: int = 0
    compiled: bool = False
    feeding: Feeding | None = None
    shapes: dict[int, list[Any]] | None = None
    refused: bool = False
    captured: Captured | None = None
    template: Template | None = None
    placed: Placed | None = None
    follows: Placed | None = None
