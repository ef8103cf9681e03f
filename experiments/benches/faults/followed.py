"""A training that records where each step was finally taken, so that the steps can be repeated in the same places.

Steps in the training's own process round differently from placed ones. Within 180 steps the difference was seen to grow
to 3.5 % of the distance that weights moved, in which a lost step would not be noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from experiments.benches.online.training import Moment, Training
from placer.errors import PlacerError
from placer.result import Failed
from placer.train.steps.modes import UNTOUCHED, Placed


class FollowedTraining(Training):
    """A `Training` that records where steps were taken. A step that a lost worker undid counts as it was repeated."""

    def __init__(self, model: str, devices: str | None, budget: int, seed: int = 0) -> None:
        super().__init__(model, devices, budget, seed)
        self.placed_steps: list[bool] = []  # for each step, whether it was placed rather than run in this process
        self.elsewhere: set[int] = set()  # undone steps that were repeated in another place than their loss is from
        self._logged: list[int] = []  # the steps since the last snapshot
        self._repeats = False
        log, run = self.live.session.log, self.live._calls._placed_run
        around(log, "add", self._added)
        around(log, "save", self._saved)
        around(log, "replay", self._replayed)
        around(run, "run", self._ran)

    def step(self) -> float:
        """As `Training.step`."""
        self.placed_steps.append(False)
        return super().step()

    def again(self, start: Moment, count: int) -> list[float]:
        """Repeat `count` steps from `start`, each in the place where it was taken before, and return their losses.

        Raises PlacerError if a step is taken in another place.
        """
        before = self.placed_steps[start.at : start.at + count]
        for variable, value in start.values:
            variable.assign(value)
        del self.losses[start.at :], self.placed_steps[start.at :]
        for is_placed in before:
            self.live.mode = self._placed() if is_placed else UNTOUCHED
            self.step()
        if self.placed_steps[start.at :] != before:
            raise PlacerError("the steps could not be repeated where they were taken before.")
        return self.losses[start.at :]

    def _placed(self) -> Placed:
        """A placed step that can run."""
        trials = self.auto.controller.trials
        for mode in (trials.mode, self.live.mode, *trials.current):
            if isinstance(mode, Placed) and self.live.is_current(mode):
                return mode
        graph = self.live.joined.captured.graph
        built = self.live.background(lambda: self.live.build((0,) * len(graph), (), "repeated")).result()
        placed = self.live.settle(built)
        if isinstance(placed, Failed):
            raise PlacerError(f"no placed step can run: {placed.detail}")
        trials.built.append(placed)
        return placed

    def _ran(self, whole: Callable[..., Any], *arguments: Any) -> Any:
        found = whole(*arguments)
        if not self._repeats:
            self.placed_steps[-1] = True
        return found

    def _added(self, whole: Callable[..., Any], *arguments: Any) -> None:
        whole(*arguments)
        if not self._repeats:
            self._logged.append(len(self.placed_steps) - 1)

    def _saved(self, whole: Callable[..., Any]) -> None:
        whole()
        self._logged.clear()

    def _replayed(self, whole: Callable[..., Any]) -> None:
        steps, is_placed = self._logged.copy(), isinstance(self.live.mode, Placed)
        self._repeats = True
        try:
            whole()
        finally:
            self._repeats = False
        self.elsewhere |= {step for step in steps if self.placed_steps[step] != is_placed}
        for step in steps:
            self.placed_steps[step] = is_placed


def around(owner: Any, name: str, new: Callable[..., Any]) -> None:
    """Replace a method by `new`, which gets the original method as its first argument."""
    whole = getattr(owner, name)
    setattr(owner, name, lambda *arguments: new(whole, *arguments))
