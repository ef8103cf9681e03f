"""One side of the bench's step times: a loop in this process, which takes a step only when asked."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import keras
import numpy as np

import placer
from experiments.loops.catalogue import find
from experiments.loops.run import Run
from placer.keras import AutoPlace


def serve(connection: Connection, name: str, options: dict[str, Any] | None) -> None:
    """Run the loop, wrapped with these options or alone (None), until the other end is gone.

    Answers at first, and after each number of steps that it received: (seconds of each step, states of the searches).
    """
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        _Paced(connection, options).of(find(name).program)
    except _Over:
        return


class _Over(BaseException):
    """Nobody asks for more steps."""


class _Paced(Run):
    """Takes steps as they are asked for, and sends how long each took."""

    epochs, patience = 10**6, 10**6

    def __init__(self, connection: Connection, options: dict[str, Any] | None) -> None:
        super().__init__()
        self._connection, self._options = connection, options
        self._steps: list[placer.AutoStep] = []
        self._placing: AutoPlace | None = None
        self._took: list[float] = []
        self._wanted = 0
        self._begin: float | None = None

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
        """Fetch them, as a loop does that prints its loss."""
        for value in values.values():
            np.array(value)

    def callbacks(self, example: Any) -> list[Any]:
        gate = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: self.gate())
        if self._options is None:
            return [gate]
        self._placing = AutoPlace(log_dir=None, **self._options)
        return [gate, self._placing]

    def gate(self) -> None:
        """Before each step. Raises _Over where no more are wanted."""
        if self._begin is not None:
            self._took.append(time.perf_counter() - self._begin)
        if len(self._took) >= self._wanted:
            self._connection.send((self._took, self._state()))
            self._took = []
            try:
                self._wanted = self._connection.recv()
            except EOFError:
                raise _Over from None
        self._begin = time.perf_counter()

    def _state(self) -> list[str]:
        own = [self._placing.step] if self._placing is not None and self._placing.step is not None else []
        return [
            f"{step.phase}: {'placed' if step.mapping is not None else step.left_alone or 'untouched'}"
            for step in (*self._steps, *own)
        ]
