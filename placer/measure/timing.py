"""Times one step, whether placed or untouched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from placer.devices.gpu_wait import drain
from placer.devices.host.suspends import Suspends
from placer.devices.workers.deadline import waiting
from placer.execute.outputs import values


class Step(Protocol):
    """A step that can be timed: a placed step or the untouched step."""

    def run_flat(self, inputs: Sequence[Any]) -> list[Any]:
        """Run one training step on flat inputs, and return its flat outputs."""

    def close(self) -> None:
        """Release what the step holds."""


def timed(step: Step, inputs: Sequence[Any], clock: Callable[[], float], suspends: Suspends | None = None) -> float:
    """Seconds of one step, until its returned values are in this process and all GPUs are idle. If the machine was
    suspended since `suspends` was last asked, another step is timed, because this one was the first on cold caches.
    """
    while True:
        with waiting("steps were measured"):
            begin = clock()
            values(step.run_flat(inputs))
            drain()
            step_s = clock() - begin
        if suspends is None or not suspends.passed_s():
            return step_s
