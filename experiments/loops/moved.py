"""A step that is moved among random mappings by hand: wrapped and closed, again and again."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import placer
from placer.trace.capture import capture

FIRST, MOVE, UNWRAP, AGAIN = 3, 15, 27, 31  # calls at which it is placed, moved, taken off, and placed once more


@dataclass
class Moved:
    """Makes random mappings over the devices `names`, as files in `folder`."""

    names: Sequence[str]
    devices: str | None
    folder: Path
    made: list[Path] = field(default_factory=list)

    def mapping(self, step: Any, args: Sequence[Any], kwargs: dict[str, Any], seed: int) -> Path:
        """A mapping for the step as called with these."""
        graph = capture(step, args, "step", kwargs, needs_loss=False).graph
        rng = random.Random(seed)
        sides = {graph.ops[v].name: side for unit in graph.colocated for side in [rng.choice(self.names)] for v in unit}
        path = self.folder / f"mapping-{len(self.made)}.json"
        path.write_text(json.dumps({"format": "placer.mapping/1", "assignment": sides}))
        self.made.append(path)
        return path


class MovedStep:
    """Called like the step."""

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
        """Take it off; harmless when called twice."""
        if self._wrapped is not None:
            self._journal(self._wrapped)
            self._wrapped.close()
            self._wrapped = None
