"""A snapshot of all variables and the steps since, which bring a training back to its current state after a loss."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from placer import tf_internals
from placer.train.variables.hooks import unwatched
from placer.train.variables.replicas import Replicas

SYNC_SHARE = 0.003  # share of the training time for snapshots, unless the user says how many steps apart they are
LEAST_STEPS = 16  # between two snapshots
MOST_LOG_BYTES = 512 * 2**20


class LoggedStep(NamedTuple):
    """A step taken since the snapshot."""

    writes: dict[int, Any]  # what the user had written to variables before it: variable's id -> value
    repeat: Callable[[], None]


class StepLog:
    """The snapshot and the steps since. Call `before_step` before each placed step and `add` after it; then `replay`
    leads from the snapshot to the current state.
    """

    def __init__(self, replicas: Replicas, clock: Callable[[], float] = time.perf_counter) -> None:
        self.snapshot: dict[int, Any] | None = None  # variable's id -> value; None before the first `save`
        self.steps: list[LoggedStep] = []
        self.unrepeatable = 0  # steps since the snapshot that no repetition can bring back
        self.is_stale = False  # whether variables changed since the snapshot in ways that are not logged
        self._replicas, self._clock = replicas, clock
        self._writes: dict[int, Any] = {}  # of the user, since the last step logged
        self._bytes = 0  # that the logged steps hold
        self._snapshot_s = 0.0  # seconds that the last snapshot took

    def save(self) -> None:
        """Take a snapshot and start an empty log; this also brings the user's variables up to date."""
        begin = self._clock()
        snapshot = self._replicas.snapshot()
        self._snapshot_s = self._clock() - begin
        self._replicas.writes()
        self.snapshot, self.steps, self._writes = snapshot, [], {}  # in one go, or a recovery might take steps twice
        self._bytes = self.unrepeatable = 0
        self.is_stale = False

    def forget(self) -> None:
        """Drop the snapshot and the log, because the devices were left."""
        self.snapshot, self.steps, self._writes = None, [], {}
        self._bytes = self.unrepeatable = 0
        self.is_stale = True

    def disown(self, variables: Iterable[tf.Variable]) -> None:
        """Forget variables, because other objects may get their ids. To be called while no step is logged."""
        for variable in variables:
            self._writes.pop(id(variable), None)
            if self.snapshot is not None:
                self.snapshot.pop(id(variable), None)

    def before_step(self) -> None:
        """Keep what the user wrote since the last step; take a snapshot instead if the log is stale."""
        if self.is_stale:
            self.save()
        else:
            self.keep_writes()

    def keep_writes(self) -> None:
        """Keep what the user wrote since the last step."""
        self._writes.update(self._replicas.writes())

    def add(self, tensors: Sequence[Any], repeat: Callable[[], None]) -> None:
        """Log a step that has run on flat `tensors`. A step that takes an iterator cannot be repeated, because the
        iterator has moved on.
        """
        step_bytes = 0
        for tensor in tensors:
            dtype = tensor.dtype
            if dtype is tf.resource or dtype is tf.variant:
                self.unrepeatable += 1
                return
            step_bytes += _text_bytes(tensor) if dtype is tf.string else tf_internals.variables.bytes_of(tensor)
        self.steps.append(LoggedStep(self._writes, repeat))
        self._bytes += step_bytes + sum(map(tf_internals.variables.bytes_of, self._writes.values()))
        self._writes = {}

    def is_due(self, step_s: float, sync_every: int | None) -> bool:
        """Whether to take a snapshot now. sync_every: most steps between two snapshots; None = enough steps of `step_s`
        seconds to keep the share of snapshots within SYNC_SHARE.
        """
        if sync_every is None:
            sync_every = max(LEAST_STEPS, math.ceil(self._snapshot_s / (SYNC_SHARE * max(step_s, 1e-6))))
        return len(self.steps) + self.unrepeatable >= sync_every or self._bytes > MOST_LOG_BYTES

    def replay(self) -> None:
        """Repeat all that is logged, and take a new snapshot. Variables must be as in the last snapshot."""
        for step in self.steps:
            self._replicas.overwrite(step.writes)
            step.repeat()
        self._replicas.overwrite(self._writes)
        self.save()


def _text_bytes(tensor: Any) -> int:
    """The bytes of strings, such as serialized examples, whose type does not tell their lengths."""
    with unwatched(), tf.device("CPU:0"):
        return int(tf.reduce_sum(tf.cast(tf.strings.length(tensor), tf.int64)))
