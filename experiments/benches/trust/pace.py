"""A loop wrapped with default settings against the same loop alone: two processes that take blocks of steps in turn."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import sqrt
from multiprocessing.connection import Connection
from statistics import median
from types import TracebackType
from typing import Any, Self

import numpy as np

from experiments.benches.bench import Facts
from experiments.benches.process import SPAWN
from experiments.loops.catalogue import SETTLED
from placer.devices.workers.worker import end_with_parent
from placer.errors import PlacerError

# A block is so many seconds and steps long, and its first steps do not count: the other side has had the caches. Blocks
# go on for so long, and there are so many pairs at least. Two sides that are both alone differ by 1 or 2 % then.
BLOCK_S, FEWEST, FIRST = 0.1, 12, 2
PAIRS_S, FEWEST_PAIRS = 16.0, 12
SEARCH, PAUSE_S = 10, 0.1  # steps at a time while the search goes on, and the pause after them
ANSWER_S, SEARCH_S = 120.0, 180.0  # limits


def pace_facts(loop: str, workers: int, budget: int, seconds: float = PAIRS_S) -> Facts:
    """How long a step of the loop takes, wrapped and alone, once the search has ended.

    ratio: the median over pairs of blocks of the ratio of their medians; spread: its interquartile range.
    """
    with _Side(loop, {"devices": f"workers:{workers}", "budget": budget}) as wrapped, _Side(loop, None) as alone:
        for side in (wrapped, alone):
            side.wait()
        begin, steps = time.perf_counter(), 0
        while not wrapped.is_settled:
            steps += len(wrapped.block(SEARCH))
            time.sleep(PAUSE_S)
            if time.perf_counter() - begin > SEARCH_S:
                raise PlacerError(f"the search did not end within {SEARCH_S:.0f} s: {wrapped.state}")
        each = max(FEWEST, round(BLOCK_S / median(alone.block(FEWEST)[FIRST:])))
        pairs: list[tuple[float, float]] = []
        begin = time.perf_counter()
        while len(pairs) < FEWEST_PAIRS or time.perf_counter() - begin < seconds:
            sides = [wrapped, alone] if len(pairs) % 2 else [alone, wrapped]
            took = {side: median(side.block(each)[FIRST:]) for side in sides}
            pairs.append((took[wrapped], took[alone]))
        return {**compared(pairs), "steps": each * len(pairs), "searched": steps, "ended": wrapped.state}


def compared(pairs: Sequence[tuple[float, float]]) -> Facts:
    """(seconds wrapped, seconds alone) of each pair of blocks. error: the standard error of the median ratio."""
    ratios = [wrapped / alone for wrapped, alone in pairs]
    low, high = np.percentile(ratios, [25, 75])
    return {
        "ratio": median(ratios),
        "spread": float(high - low),
        "error": float(high - low) / 1.349 * 1.253 / sqrt(len(ratios)),  # of a median, were it normal
        "pairs": len(ratios),
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

    def wait(self) -> None:
        """Return once the loop is about to take its first step. Several sides start at the same time."""
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


def _serve(connection: Connection, name: str, options: dict[str, Any] | None) -> None:
    """In a side's own process, which alone loads TensorFlow."""
    end_with_parent()
    from experiments.benches.trust.paced import serve

    serve(connection, name, options)
