"""Keeps what was tried within a training: each mode with its result, or why it has none, and its prediction."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from placer.result import Result
from placer.train.steps.modes import WHOLE
from search.online.replan.proposal import Proposal

MOST_TRIED = 500  # mappings that are kept; one of 10,000 ops, with its run order, takes up to 1 MB


@dataclass(frozen=True)
class LiveTrial:
    """A mode that was measured within the training, or that could not run."""

    name: str
    op_devices: tuple[int, ...]  # device of each op; empty for the untouched step
    result: Result
    predicted_s: float | None
    plan: int = WHOLE  # number of the plan of splits by which ops are divided
    at_s: float | None = None  # when it was measured, in seconds since the search began
    order: tuple[str, ...] = ()  # the run order it was built with, as in Proposal


class Tried:
    """The trials of a training, each mode once, in the order in which they were first measured."""

    def __init__(
        self, report: Callable[[LiveTrial, bool], None], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """report: called with each result, and whether it is the first of its mode. clock: seconds."""
        self.trials: list[LiveTrial] = []
        self._report, self._clock, self._began_s = report, clock, clock()
        self._predicted_s: dict[tuple[int, tuple[int, ...]], float] = {}  # by plan of splits and devices

    @property
    def mappings(self) -> int:
        """The number of mappings that were tried, without the untouched step."""
        return sum(1 for trial in self.trials if trial.op_devices)

    def note(self, proposal: Proposal) -> None:
        """Keep the prediction for a mapping that is about to be built."""
        self._predicted_s[proposal.plan, proposal.op_devices] = proposal.predicted_s

    def predicted_s(self, plan: int, devices: tuple[int, ...]) -> float | None:
        """Return the seconds of a step as predicted when the mapping was proposed; None if it was not proposed."""
        return self._predicted_s.get((plan, devices))

    def tell(self, name: str, plan: int, devices: tuple[int, ...], order: tuple[str, ...], result: Result) -> None:
        """Keep a result, in place of an earlier one of the same mode, and report it."""
        at_s = self._clock() - self._began_s
        trial = LiveTrial(name, devices, result, self.predicted_s(plan, devices), plan, at_s, order)
        same = (i for i, t in enumerate(self.trials) if (t.plan, t.op_devices, t.name) == (plan, devices, name))
        known = next(same, None)
        if known is None:
            self.trials.append(trial)
        else:
            self.trials[known] = trial
        self._report(trial, known is None)

    def forget_old(self, keep: Collection[tuple[int, tuple[int, ...]]], most: int = MOST_TRIED) -> None:
        """Forget the oldest mappings beyond `most`, so that a training that adapts for days does not fill memory. keep:
        plan and devices of the mappings that stay in any case.
        """
        mappings = [trial for trial in self.trials if trial.op_devices]
        for trial in mappings[: max(0, len(mappings) - most)]:
            if (trial.plan, trial.op_devices) not in keep:
                self.trials.remove(trial)
        known = {(trial.plan, trial.op_devices) for trial in self.trials}.union(keep)
        self._predicted_s = {key: found for key, found in self._predicted_s.items() if key in known}

    def clear(self) -> None:
        """Forget everything, because a search begins from the start."""
        self.trials.clear()
        self._predicted_s.clear()
