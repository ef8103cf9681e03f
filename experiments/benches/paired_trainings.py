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

from experiments.benches.bench import Facts
from experiments.benches.process import SPAWN
from experiments.loops.catalogue import SETTLED
from placer.devices.workers.worker import end_with_parent
from placer.errors import PlacerError
from placer.result import median_error, quartiles

if TYPE_CHECKING:  # only a training's own process loads TensorFlow
    from placer import AutoStep

# A block takes BLOCK_S and at least FEWEST steps. Its FIRST steps do not count, because the other side has used the
# caches. Pairs of blocks go on for PAIRS_S, and are at least FEWEST_PAIRS. Two untouched sides then differ by 1 or 2 %.
BLOCK_S, FEWEST, FIRST = 0.1, 12, 2
PAIRS_S, FEWEST_PAIRS = 16.0, 12
ANSWER_S = 120.0  # limit


class Side:
    """The end that asks a training, which runs in its own process, for blocks of steps."""

    def __init__(self, module: str, *arguments: Any) -> None:
        """module: its `serve(connection, *arguments)` runs the training in the process, gated by `Blocks`."""
        self._ours, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_serve, args=(theirs, module, arguments))
        self._process.start()
        theirs.close()
        self.state: list[str] = []

    def wait(self) -> None:
        """Return once the training is about to take its first step. Until then, several sides can start together."""
        self._answer()

    def block(self, steps: int) -> list[float]:
        """Have the training take `steps` steps. Returns the seconds of each."""
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
    """The other end asks for no more steps. It is no Exception, so that no training catches it."""


class Blocks:
    """The end that answers. It sends (seconds of each step, state) before the first block and after each block."""

    def __init__(self, connection: Connection, state: Callable[[], list[str]]) -> None:
        """state: returns lines on the training, which are sent after each block."""
        self._connection, self._state = connection, state
        self._took: list[float] = []
        self._wanted = 0
        self._begin: float | None = None

    def gate(self) -> None:
        """Return when a step is wanted; call it before each step. Raises OverError if no more steps are wanted."""
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
    """Return ([(median step seconds of `one`, of `other`) for each pair of blocks], steps of each side).

    The sides take turns in beginning a pair. A block has the steps that `other` takes in BLOCK_S, at least FEWEST.
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
    """The seconds of one side divided by those of the other: the median over the pairs, its interquartile range and
    its standard error. Also the median seconds of both sides, under their names `one` and `other`.
    """
    ratios = [mine / theirs for mine, theirs in pairs]
    low, _, high = quartiles(ratios)
    return {
        "ratio": median(ratios),
        "spread": high - low,
        "error": median_error(high - low, len(ratios)),
        one: median(mine for mine, _ in pairs),
        other: median(theirs for _, theirs in pairs),
        "pairs": len(pairs),
    }


def state_of(steps: Sequence[AutoStep]) -> list[str]:
    """A line for each wrapped step: its phase, and whether it is placed or why not."""
    return [
        f"{step.phase}: {'placed' if step.mapping is not None else step.left_alone or 'untouched'}" for step in steps
    ]


def is_settled(state: Sequence[str]) -> bool:
    """Whether all of these steps have ended their search. False without steps: Keras's first batch makes the step."""
    return bool(state) and all(line.partition(":")[0] in SETTLED for line in state)


def _serve(connection: Connection, module: str, arguments: Sequence[Any]) -> None:
    """Run the training in the side's own process; only that process loads TensorFlow."""
    end_with_parent()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import_module(module).serve(connection, *arguments)
