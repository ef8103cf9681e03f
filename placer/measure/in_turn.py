"""Times steps in turn, so that their times may be compared: all are taken in the same minutes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median
from typing import Any

from placer.devices.host.suspends import Suspends
from placer.measure.settings import LEAST_TURNS
from placer.measure.timing import Step, timed
from placer.result import Measured, is_clearly_slower, relative_error, summary

PRECISE = 0.004  # relative standard error of a median; below it, more steps would change no quoted figure


@dataclass(frozen=True)
class InTurn:
    """Times steps on the same flat inputs. Raises what the steps raise.

    warm_up: first steps of each that do not count. suspends: notices sleep of the machine; such steps are timed again.
    """

    inputs: Sequence[Any]
    warm_up: int
    clock: Callable[[], float]
    suspends: Suspends | None = None

    def one_step_s(self, step: Step) -> float:
        """Seconds of one step."""
        return timed(step, self.inputs, self.clock, self.suspends)

    def seconds_of(self, step: Step, repeats: int) -> list[float]:
        """Seconds of each of `repeats` steps, one after another, after the warm-up."""
        for _ in range(self.warm_up):
            self.one_step_s(step)
        return [self.one_step_s(step) for _ in range(repeats)]

    def compare(
        self,
        steps: Sequence[Step],
        repeats: int,
        *,
        fewest: int | None = None,
        kept: Collection[Step] = (),
        limit_s: float = inf,
        after_turn: Callable[[], object] = lambda: None,
    ) -> list[Measured]:
        """Time steps in turn, for figures that a report may quote.

        fewest=None: every step takes `repeats` turns. Otherwise the slower half drops out after `fewest` turns and
        again halfway from there to `repeats`; from `fewest` on, steps clearly slower than the fastest drop out, too.
        Steps in `kept` never drop out. Timing ends early once the medians of the remaining steps are known to PRECISE.
        limit_s: no turn begins after these seconds, once LEAST_TURNS were taken.
        """
        begin_s = self.clock() if limit_s < inf else 0.0
        for step in steps:
            self.seconds_of(step, 0)  # the warm-up
        seconds: list[list[float]] = [[] for _ in steps]
        live = list(range(len(steps)))
        for turn in range(1, repeats + 1):
            for i in live:
                seconds[i].append(self.one_step_s(steps[i]))
            after_turn()
            if fewest is not None and turn >= fewest:
                halved = turn in (fewest, (fewest + repeats) // 2)
                live = _racing(seconds, live, {i for i in live if steps[i] in kept}, halved=halved)
                if all(relative_error(seconds[i]) <= PRECISE for i in live):
                    break
            if turn >= LEAST_TURNS and limit_s < inf and self.clock() - begin_s > limit_s:
                break
        turns = max(map(len, seconds), default=0)
        return [replace(summary(s), stopped_early=len(s) < turns) for s in seconds]


def _racing(seconds: Sequence[list[float]], live: Sequence[int], kept: Collection[int], *, halved: bool) -> list[int]:
    """Those of the steps `live` that go on, by number. halved: whether the slower half drops out."""
    fastest = min((seconds[i] for i in live), key=median)
    racing = [i for i in live if i not in kept and not is_clearly_slower(seconds[i], fastest)]
    if halved:
        racing = sorted(racing, key=lambda i: median(seconds[i]))[: (len(racing) + 1) // 2]
    return [i for i in live if i in racing or i in kept]
