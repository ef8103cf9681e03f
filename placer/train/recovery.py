"""Recovers training after a device was lost: restores the last snapshot of the variables, and repeats the steps since
then on the devices that are left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tensorflow as tf

from placer.devices.process_resources import dropped_by_joining, remedy
from placer.devices.workers.deadline import waiting
from placer.errors import PlacerError
from placer.train.connection import SILENT_S, Connection
from placer.train.member import Member
from placer.train.variables.replicas import Replicas
from placer.train.variables.step_log import StepLog

MOST_REPAIRS = 10  # tries to recover from one loss, if more devices are lost during each


@dataclass(frozen=True)
class Loss:
    """A loss that training recovered from, and its cost."""

    lost: tuple[str, ...]  # devices; empty if none was lost, but a call did not reach one
    repeated: int  # steps since the snapshot that were taken again
    forgotten: int  # steps that could not be repeated
    seconds: float
    dropped: str | None = None  # what TensorFlow dropped of this program, as `dropped_by_joining` says it

    @property
    def in_words(self) -> str:
        """The loss in words, for the journal."""
        what = f"lost {', '.join(self.lost)}" if self.lost else "a call did not reach a worker"
        dropped = f" Also, {remedy(self.dropped)}." if self.dropped else ""
        return (
            f"{what}: {self.repeated} steps since the last snapshot were taken again, {self.forgotten} could not be; "
            f"{self.seconds:.1f} s.{dropped}"
        )


class Recovery:
    """Detects lost devices of a session, and goes on without them."""

    def __init__(
        self,
        connection: Connection,
        replicas: Replicas,
        log: StepLog,
        members: Callable[[], Sequence[Member]],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """members: the live steps of the session. clock: seconds."""
        self.losses: list[Loss] = []
        self.is_due = False  # whether something failed that may mean a loss, so that the next step has to `check`
        self._connection, self._replicas, self._log = connection, replicas, log
        self._members, self._clock = members, clock
        self._is_running = False
        self._dropped: str | None = None  # what the program loses by a recovery that has not ended yet

    def check(self) -> None:
        """Between steps: finish a recovery that was cut short; if devices were lost, go on without them."""
        self.is_due = False
        if self._replicas.is_void:
            self.recover()
        if self._connection.fragile and self._connection.lost():
            self._log.before_step()
            lost = self._connection.lost(SILENT_S)
            if lost:
                self.recover(lost)

    def is_loss(self, error: BaseException) -> bool:
        """Whether a lost device caused an error; waits a moment for a process that is dying."""
        return self._connection.lost_by(error) is not None

    def recover(self, lost: Sequence[str] | None = None) -> None:
        """Go on with the devices that are left, from the last snapshot, and repeat the steps since then. lost: the lost
        devices; None = those that do not answer now.

        Raises PlacerError if there is no snapshot. A recovery that is cut short, by Ctrl-C for example, starts again
        before the next step or read of a variable.
        """
        self._is_running = True
        try:
            self.losses.append(self._recover(lost))
        except BaseException:
            self.is_due = self._replicas.is_void = self._log.snapshot is not None
            raise
        finally:
            self._is_running = False

    def mend(self, error: BaseException | None) -> bool:
        """Recover from a loss that showed while the user read variables; returns whether training was recovered. error:
        the error raised, which need not mean a loss; None = finish a recovery that was cut short.
        """
        if self._is_running or not (error is None or self.is_loss(error)):
            return False
        self._log.keep_writes()
        self.recover()
        return True

    def _recover(self, found: Sequence[str] | None) -> Loss:
        new = self._connection.lost() if found is None else tuple(found)
        begin, lost, snapshot = self._clock(), new, self._log.snapshot
        if self._replicas.is_void:  # what an interrupted recovery had found lost now counts as missing
            lost = tuple(dict.fromkeys((*self._connection.missing, *new)))
        if snapshot is None:
            what = f"{', '.join(lost)} was lost" if lost else "a call did not reach a worker"
            raise PlacerError(f"{what} before the first snapshot; start the training again.")
        repeated, forgotten = len(self._log.steps), self._log.unrepeatable
        self._dropped = self._dropped or dropped_by_joining()  # also by an interrupted recovery
        for repair in range(MOST_REPAIRS):
            known = self._connection.missing
            self._leave(new)
            lost += tuple(name for name in self._connection.missing if name not in (*known, *lost))
            self._replicas.restore(snapshot)
            try:
                self._repeat()
                break
            except tf.errors.OpError as error:
                more = self._connection.lost_by(error)
                if more is None or repair == MOST_REPAIRS - 1:
                    raise
                new, lost = more, lost + more
        dropped, self._dropped = self._dropped, None
        return Loss(lost, repeated, forgotten, self._clock() - begin, dropped)

    def _leave(self, lost: Sequence[str]) -> None:
        """Leave the lost devices, and any others that the connection cannot keep without them."""
        for member in self._members():
            member.pause()
        self._connection.go_on_without(lost)

    def _repeat(self) -> None:
        """Rebuild on the devices that are left, and repeat all logged steps. Variables must be as in the snapshot."""
        with waiting("the training was recovered", first=True):
            for member in self._members():
                member.rebuild()
            self._log.replay()
