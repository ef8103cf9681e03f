"""Two trainings compared by the clock: each in a process of its own, which takes a block of steps only when asked."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from multiprocessing.connection import Connection
from statistics import median
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from experiments.benches.bench import Facts
from experiments.benches.process import SPAWN
from experiments.loops.catalogue import SETTLED
from placer.devices.workers.worker import end_with_parent
from placer.errors import PlacerError
from placer.result import median_error

if TYPE_CHECKING:  # only a training's own process loads TensorFlow
    from placer import AutoStep

# A block is so many seconds and steps long, and its first steps do not count: the other side has had the caches. Blocks
# go on for so long, and there are so many pairs at least. Two sides that are both alone differ by 1 or 2 % then.
BLOCK_S, FEWEST, FIRST = 0.1, 12, 2
PAIRS_S, FEWEST_PAIRS = 16.0, 12
ANSWER_S = 120.0  # limit


class Side:
    """The end that asks: a training in a process of its own."""

    def __init__(self, module: str, *arguments: Any) -> None:
        """module: whose `serve(connection, *arguments)` runs the training there, gated by `Blocks`."""
        self._ours, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_serve, args=(theirs, module, arguments))
        self._process.start()
        theirs.close()
        self.state: list[str] = []

    def wait(self) -> None:
        """Return once the training is about to take its first step. Several sides start at the same time."""
        self._answer()

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
            raise PlacerError("the training's process ended") from None
        return list(took)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.kill()
        self._process.join()
        self._ours.close()


class OverError(BaseException):
    """Nobody asks for more steps. It is no Exception, so that no training catches it."""


class Blocks:
    """The end that answers: at first, and after each block, (seconds of each step, state)."""

    def __init__(self, connection: Connection, state: Callable[[], list[str]]) -> None:
        """state: what the training says of itself after each block."""
        self._connection, self._state = connection, state
        self._took: list[float] = []
        self._wanted = 0
        self._begin: float | None = None

    def gate(self) -> None:
        """Call it before each step. Raises OverError where no more are wanted."""
        if self._begin is not None:
            self._took.append(time.perf_counter() - self._begin)
        if len(self._took) >= self._wanted:
            self._connection.send((self._took, self._state()))
            self._took = []
            try:
                self._wanted = self._connection.recv()
            except EOFError:
                raise OverError from None
        self._begin = time.perf_counter()


def blocks_in_turn(one: Side, other: Side, seconds: float = PAIRS_S) -> tuple[list[tuple[float, float]], int]:
    """([(median seconds of a step of one, of the other) of each pair of blocks], steps of each side).

    The side that begins a pair changes. A block has as many steps as `other` takes in BLOCK_S.
    """
    each = max(FEWEST, round(BLOCK_S / median(other.block(FEWEST)[FIRST:])))
    pairs: list[tuple[float, float]] = []
    begin = time.perf_counter()
    while len(pairs) < FEWEST_PAIRS or time.perf_counter() - begin < seconds:
        sides = [one, other] if len(pairs) % 2 else [other, one]
        took = {side: median(side.block(each)[FIRST:]) for side in sides}
        pairs.append((took[one], took[other]))
    return pairs, each * len(pairs)


def compared(pairs: Sequence[tuple[float, float]], one: str, other: str) -> Facts:
    """The ratio of one's seconds by the other's, the median over the pairs, with its interquartile range and standard
    error, and the median seconds of both, under these names.
    """
    ratios = [mine / theirs for mine, theirs in pairs]
    low, high = np.percentile(ratios, [25, 75])
    return {
        "ratio": median(ratios),
        "spread": float(high - low),
        "error": median_error(float(high - low), len(ratios)),
        one: median(mine for mine, _ in pairs),
        other: median(theirs for _, theirs in pairs),
        "pairs": len(pairs),
    }


def state_of(steps: Sequence[AutoStep]) -> list[str]:
    """Of each wrapped step, its phase and whether it is placed."""
    return [
        f"{step.phase}: {'placed' if step.mapping is not None else step.left_alone or 'untouched'}" for step in steps
    ]


def is_settled(state: Sequence[str]) -> bool:
    """Whether none of these steps searches any more; not before there is one: Keras's first batch makes it."""
    return bool(state) and all(line.partition(":")[0] in SETTLED for line in state)


def _serve(connection: Connection, module: str, arguments: Sequence[Any]) -> None:
    """In a side's own process, which alone loads TensorFlow."""
    end_with_parent()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import_module(module).serve(connection, *arguments)
