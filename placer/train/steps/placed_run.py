"""One placed step of the training after the other: run, timed, and undone where a step fails when it first trains."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet

from placer.devices.gpu_wait import drain, has_gpus
from placer.devices.workers.deadline import waiting
from placer.train.device_session import DeviceSession
from placer.train.steps.modes import Placed

DRAINED = 64  # calls after a change of mode that are timed until all they started is done; later ones overlap


class PlacedRun:
    """Runs placed steps on the live variables; for the training thread, under the session's lock."""

    def __init__(self, session: DeviceSession, clock: Callable[[], float] = time.perf_counter) -> None:
        self.session, self.clock = session, clock
        self._calls_in_mode = 0  # since the mode changed
        self._proven: WeakSet[Placed] = WeakSet()  # steps that trained the live variables before

    def mode_changed(self) -> None:
        """Time the next calls to their end again."""
        self._calls_in_mode = 0

    @property
    def overlaps(self) -> bool:
        """Whether the latest call was timed while what it started still ran, and will overlap with the next."""
        return self._calls_in_mode > DRAINED and has_gpus()

    def kept(self, mode: Placed) -> dict[int, Any] | None:
        """What `Replicas.roll_back` needs to undo a step that has not trained yet; None for one that has."""
        return None if mode in self._proven else self.session.replicas.keep(mode.use)

    def trained(self, mode: Placed) -> None:
        """Keep no copies before the steps of this mode any more: one of them has succeeded."""
        self._proven.add(mode)

    def run(self, mode: Placed, tensors: Sequence[Any]) -> tuple[list[Any], float]:
        """What one placed step returns, flat, and its seconds, fetching variables not included."""
        self.session.replicas.before(mode.use)
        begin = self.clock()
        try:
            with waiting("a step was taken"):
                outputs = mode.step.run_flat(tensors)
                self._calls_in_mode += 1
                if self._calls_in_mode <= DRAINED:
                    drain()
            step_s = self.clock() - begin
        finally:  # a step that failed may have written
            self.session.replicas.after(mode.use)
        return outputs, step_s
