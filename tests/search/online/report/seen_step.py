"""An AutoStep as reports see it."""

from __future__ import annotations

from dataclasses import dataclass, field

from placer.graph.mapping import Mapping
from search.online.journal import Journal
from search.online.trials.tried import LiveTrial


@dataclass
class Step:
    """Its facts, with two workers."""

    name: str = "train_step"
    phase: str = "steady"
    steps: int = 500
    mapping: Mapping | None = None
    splits: str | None = None
    step_s: float | None = None
    best_single_s: float | None = None
    untouched_s: float | None = None
    left_alone: str | None = None
    device_names: tuple[str, ...] = ("worker:0", "worker:1")
    tried: list[LiveTrial] = field(default_factory=list)
    journal: Journal = field(default_factory=Journal)
