"""Untouched steps recorded as they run, so that scratch runs can repeat them on placed ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from placer.errors import BadInputError
from placer.execute.outputs import returned
from placer.trace.capture import Captured
from placer.trace.keras_ties import with_ties
from placer.train.device_session import DeviceSession
from placer.train.steps.scratch_run import Recording
from placer.train.variables.hooks import unwatched

WRITES = "writes its variables while its steps run"
RECORDED = 2  # steps that a scratch run repeats


@dataclass(frozen=True)
class Recorded:
    """An untouched step: its flat inputs, and what it returned."""

    tensors: Sequence[Any]
    returned: list[Any]


class Recorder:
    """Keeps the latest untouched steps, as long as nothing else changes a variable between them."""

    def __init__(self, session: DeviceSession) -> None:
        self._session = session
        self._steps: list[Recorded] = []
        self._start: dict[int, Any] = {}  # variable's id -> its value before the first recorded step
        self._end: dict[int, Any] = {}  # variable's id -> its value after the last recorded step
        self._changes = -1  # `Replicas.changes` after the last step
        self.disturbed = 0  # number of latest steps in a row during which another thread wrote

    @property
    def is_full(self) -> bool:
        """Whether enough steps are recorded for a scratch run."""
        return len(self._steps) >= RECORDED

    @property
    def is_empty(self) -> bool:
        """Whether no step is recorded that a scratch run could repeat."""
        return not self._steps

    def record(
        self, variables: Sequence[tf.Variable], tensors: Sequence[Any], run: Callable[[], tuple[Any, float]]
    ) -> tuple[Any, float]:
        """Run and record an untouched step on flat `tensors` that trains `variables`. Returns what `run` returns: its
        outputs and seconds.
        """
        replicas = self._session.replicas
        self._session.adopt(variables)
        replicas.pull()
        if replicas.changes != self._changes:
            self.clear()
        start, before = self._start or _values_of(variables), replicas.changes
        outputs, step_s = run()
        if replicas.changes == before + 1:  # by the step: nothing else wrote meanwhile
            step, end = Recorded(list(tensors), returned(with_ties(outputs))), _values_of(variables)
            self._start, self._end = start, end  # at once: Ctrl-C may come while values are copied
            self._steps.append(step)
            self.disturbed = 0
        else:
            self.clear()
            self.disturbed += 1
        self._changes = replicas.changes
        return outputs, step_s

    def recording(self, captured: Captured, name: str) -> Recording:
        """The recorded steps, by the captured graph's names. Raises BadInputError if nothing was recorded."""
        if not self._steps:
            why = f"another thread {WRITES}" if self.disturbed else "no untouched step was recorded"
            raise BadInputError(f"{name}: {why}, so that nothing can be tried.")
        start = {node: self._start[id(variable)] for node, variable in captured.variables.items()}
        end = {node: self._end[id(variable)] for node, variable in captured.variables.items()}
        return Recording(start, [step.tensors for step in self._steps], [step.returned for step in self._steps], end)

    def clear(self) -> None:
        """Drop the steps."""
        self._steps.clear()
        self._start, self._end = {}, {}


def _values_of(variables: Iterable[tf.Variable]) -> dict[int, Any]:
    """Variable's id -> a copy of its value as it is now, in this process's memory: a GPU may have no room for it."""
    with unwatched(), tf.device("CPU:0"):
        return {id(variable): variable.read_value() for variable in variables}
