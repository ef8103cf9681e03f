"""A step that is moved among random mappings by hand: wrapped and closed, again and again."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import placer
from placer.graph.mapping_files import MAPPING_FORMAT, SPLIT_FORMAT
from placer.graph.op_graph import OpGraph
from placer.splits.plan import SplitPlan
from placer.splits.plan_files import regions_of
from placer.splits.step import split_step
from placer.splits.step_graph import StepGraph
from placer.trace.capture import Captured, capture
from search.splits.candidates import plan_by
from search.splits.propagate import Rates

FIRST, MOVE, UNWRAP, AGAIN = 3, 15, 27, 31  # calls at which the step is placed, moved, unwrapped, and placed again
PLANS = ("columns", "batch", "alternate")  # by which ops are divided, in turn; see search/splits/candidates.py
OP_S, BYTE_S = 1e-3, 1e-15  # moving data costs next to nothing, so that a plan divides whatever it can


@dataclass
class Moved:
    """Makes random mappings over the devices `names`, as files in `folder`."""

    names: Sequence[str]
    devices: str | None
    folder: Path
    divided: bool = False  # whether ops and variables are divided, too
    made: list[Path] = field(default_factory=list)

    def mapping(self, step: Any, args: Sequence[Any], kwargs: dict[str, Any], seed: int) -> Path:
        """The file of a new random mapping for the step as called with `args` and `kwargs`."""
        captured = capture(step, args, "step", kwargs, needs_loss=False)
        graph, plan = self._divided(captured) if self.divided else (captured.graph, SplitPlan())
        rng = random.Random(seed)
        sides = {graph.ops[v].name: side for unit in graph.colocated for side in [rng.choice(self.names)] for v in unit}
        file: dict[str, Any] = {"format": SPLIT_FORMAT if len(plan) else MAPPING_FORMAT, "assignment": sides}
        if len(plan):
            file["splits"] = [{"way": r.way, "parts": r.parts, "ops": r.ops} for r in regions_of(plan)]
        path = self.folder / f"mapping-{len(self.made)}.json"
        path.write_text(json.dumps(file))
        self.made.append(path)
        return path

    def _divided(self, captured: Captured) -> tuple[OpGraph, SplitPlan]:
        """The step with ops divided in two, by another plan each time."""
        graph = StepGraph(captured.graph_def)
        phases = {op.name: op.phase for op in captured.graph.ops}
        rates = Rates(dict.fromkeys(graph.nodes, OP_S), BYTE_S, 0.0)
        plan = plan_by(PLANS[len(self.made) % len(PLANS)], graph, phases, rates, 2)
        return split_step(captured, plan, graph, stored=False).captured.graph, plan


class MovedStep:
    """A step that is called like the user's step, and places it at FIRST, MOVE and AGAIN."""

    def __init__(self, step: Any, moved: Moved, seed: int, journal: Callable[[placer.AutoStep], None]) -> None:
        self.placed = 0  # calls that were placed
        self._step, self._moved, self._seed, self._journal = step, moved, seed, journal
        self._wrapped: placer.AutoStep | None = None
        self._calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._calls in (FIRST, MOVE, AGAIN):
            self.close()
            path = self._moved.mapping(self._step, args, kwargs, 100 * self._seed + self._calls)
            self._wrapped = placer.place(self._step, path, devices=self._moved.devices)
        elif self._calls == UNWRAP:
            self.close()
        self._calls += 1
        if self._wrapped is None:
            return self._step(*args, **kwargs)
        self.placed += self._wrapped.mapping is not None
        return self._wrapped(*args, **kwargs)

    def close(self) -> None:
        """Unwrap the step; harmless when called twice."""
        if self._wrapped is not None:
            self._journal(self._wrapped)
            self._wrapped.close()
            self._wrapped = None
