"""One side of the bench's step times: a loop in this process, which takes a step only when asked."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import keras
import numpy as np

import placer
from experiments.benches.paired_trainings import Blocks, OverError, state_of
from experiments.loops.catalogue import find
from experiments.loops.run import Run
from placer.keras import AutoPlace


def serve(connection: Connection, name: str, options: dict[str, Any] | None) -> None:
    """Run the loop, wrapped with these options or alone (None), until the other end asks for no more steps."""
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        _Paced(connection, options).of(find(name).program)
    except OverError:
        return


class _Paced(Run):
    """A run of a loop that takes steps when it is asked, and sends the seconds of each."""

    epochs, patience = 10**6, 10**6

    def __init__(self, connection: Connection, options: dict[str, Any] | None) -> None:
        super().__init__()
        self._blocks, self._options = Blocks(connection, self._state), options
        self._steps: list[placer.AutoStep] = []
        self._placing: AutoPlace | None = None

    def wrap(self, step: Callable[..., Any]) -> Callable[..., Any]:
        if self._options is None:
            return step
        self._steps.append(placer.autoplace(step, **self._options))
        return self._steps[-1]

    def going(self) -> Iterator[int]:
        for i in itertools.count():
            self.gate()
            yield i

    def steps(self, epoch: int = 1) -> Iterator[int]:
        return self.going()

    def note(self, **values: Any) -> None:
        """Fetch the values, as a loop does that prints its loss."""
        for value in values.values():
            np.array(value)

    def callbacks(self, example: Any) -> list[Any]:
        gate = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: self.gate())
        if self._options is None:
            return [gate]
        self._placing = AutoPlace(log_dir=None, **self._options)
        return [gate, self._placing]

    def gate(self) -> None:
        """Return when a step is asked for; called before each step."""
        self._blocks.gate()

    def _state(self) -> list[str]:
        own = [self._placing.step] if self._placing is not None and self._placing.step is not None else []
        return state_of([*self._steps, *own])
