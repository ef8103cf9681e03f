"""A loop wrapped with default settings against the same loop alone: two processes that take blocks of steps in turn."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from statistics import median
from types import TracebackType
from typing import Any, Self

import keras
import numpy as np

import placer
from experiments.benches.bench import Facts
from experiments.benches.process import SPAWN
from experiments.loops.catalogue import find
from experiments.loops.run import SETTLED, Run
from placer.devices.worker import end_with_parent
from placer.errors import PlacerError
from placer.keras import AutoPlace

BLOCK_S, FEWEST, ROUNDS = 0.25, 20, 12  # seconds and steps of a block, and pairs of blocks
SEARCH, PAUSE_S = 10, 0.1  # steps at a time while the search goes on, and the pause after them
ANSWER_S, SEARCH_S = 120.0, 180.0  # limits


def pace_facts(loop: str, workers: int, budget: int, rounds: int = ROUNDS) -> Facts:
    """How long a step of the loop takes, wrapped and alone, once the search has ended.

    ratio: the median over pairs of blocks of the ratio of their medians; spread: its interquartile range.
    """
    with _Side(loop, {"devices": f"workers:{workers}", "budget": budget}) as wrapped, _Side(loop, None) as alone:
        begin, steps = time.perf_counter(), 0
        while not wrapped.is_settled:
            steps += len(wrapped.block(SEARCH))
            time.sleep(PAUSE_S)
            if time.perf_counter() - begin > SEARCH_S:
                raise PlacerError(f"the search did not end within {SEARCH_S:.0f} s: {wrapped.state}")
        each = max(FEWEST, round(BLOCK_S / median(alone.block(FEWEST)[1:])))
        pairs = []
        for i in range(rounds):
            sides = [wrapped, alone] if i % 2 else [alone, wrapped]
            took = {side: median(side.block(each)[1:]) for side in sides}
            pairs.append((took[wrapped], took[alone]))
        return {**compared(pairs), "steps": each * rounds, "searched": steps, "ended": wrapped.state}


def compared(pairs: Sequence[tuple[float, float]]) -> Facts:
    """(seconds wrapped, seconds alone) of each pair of blocks."""
    ratios = [wrapped / alone for wrapped, alone in pairs]
    low, high = np.percentile(ratios, [25, 75])
    return {
        "ratio": median(ratios),
        "spread": float(high - low),
        "wrapped_s": median(wrapped for wrapped, _ in pairs),
        "alone_s": median(alone for _, alone in pairs),
    }


class _Side:
    """A loop in a process of its own, which takes a step only when asked."""

    def __init__(self, name: str, options: dict[str, Any] | None) -> None:
        self._ours, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_serve, args=(theirs, name, options))
        self._process.start()
        theirs.close()
        self.state: list[str] = []
        self._answer()

    @property
    def is_settled(self) -> bool:
        """Whether all searches have ended."""
        return all(state.partition(":")[0] in SETTLED for state in self.state)

    def block(self, steps: int) -> list[float]:
        """Seconds of each of so many steps."""
        self._ours.send(steps)
        return self._answer()

    def _answer(self) -> list[float]:
        if not self._ours.poll(ANSWER_S):
            raise PlacerError(f"a block of steps did not end within {ANSWER_S:.0f} s")
        try:
            took, self.state = self._ours.recv()
        except EOFError:
            raise PlacerError("the loop's process ended") from None
        return list(took)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.kill()
        self._process.join()
        self._ours.close()


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


def _serve(connection: Connection, name: str, options: dict[str, Any] | None) -> None:
    end_with_parent()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        _Paced(connection, options).of(find(name).program)
    except _Over:
        return
