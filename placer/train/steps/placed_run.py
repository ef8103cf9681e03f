"""Runs and times placed steps of a training, and keeps what undoing a step needs if it fails when it first trains."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet

from placer.devices.gpu_wait import drain, has_gpus
from placer.devices.workers.deadline import waiting
from placer.train.device_session import DeviceSession
from placer.train.steps.modes import Placed

DRAINED = 64  # calls after a change of mode that are timed until GPUs are idle; later calls overlap


class PlacedRun:
    """Runs placed steps on the live variables; for the training thread, under the session's lock."""

    def __init__(self, session: DeviceSession, clock: Callable[[], float] = time.perf_counter) -> None:
        self.session, self.clock = session, clock
        self._calls_in_mode = 0  # since the mode changed
        self._proven: WeakSet[Placed] = WeakSet()  # steps that trained the live variables before

    def mode_changed(self) -> None:
        """Time the next DRAINED calls until GPUs are idle."""
        self._calls_in_mode = 0

    @property
    def overlaps(self) -> bool:
        """Whether the latest call was timed without waiting for GPUs, so that its work overlaps with the next call."""
        return self._calls_in_mode > DRAINED and has_gpus()

    def kept(self, mode: Placed) -> dict[int, Any] | None:
        """What `Replicas.roll_back` needs to undo a step that has not trained yet; None for a step that has."""
        return None if mode in self._proven else self.session.replicas.keep(mode.use)

    def trained(self, mode: Placed) -> None:
        """Note that a step of this mode has succeeded, so that no copies are kept before later ones."""
        self._proven.add(mode)

    def run(self, mode: Placed, tensors: Sequence[Any]) -> tuple[list[Any], float]:
        """Run one placed step. Returns its flat outputs, and its seconds without fetching variables."""
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
