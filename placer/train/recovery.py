"""How training outlives a lost device: from the last snapshot of the variables, the steps since then are taken again on
the devices that are left.
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

MOST_REPAIRS = 10  # of one loss, where more devices are lost during each


@dataclass(frozen=True)
class Loss:
    """What a loss cost."""

    lost: tuple[str, ...]  # devices; none where all are there, but a call did not reach one
    repeated: int  # steps, from the snapshot
    forgotten: int  # steps that could not be repeated
    seconds: float
    dropped: str | None = None  # what TensorFlow dropped of this program, as `dropped_by_joining` says it

    @property
    def in_words(self) -> str:
        """For the journal."""
        what = f"lost {', '.join(self.lost)}" if self.lost else "a call did not reach a worker"
        dropped = f" Also, {remedy(self.dropped)}." if self.dropped else ""
        return (
            f"{what}: {self.repeated} steps since the last snapshot were taken again, {self.forgotten} could not be; "
            f"{self.seconds:.1f} s.{dropped}"
        )


class Recovery:
    """Finds out that devices of a session were lost, and goes on without them."""

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
        self.is_due = False  # whether something met what may be a loss, so that the next step has to `check`
        self._connection, self._replicas, self._log = connection, replicas, log
        self._members, self._clock = members, clock
        self._is_running = False
        self._dropped: str | None = None  # of the program, by losses that are not recovered from yet

    def check(self) -> None:
        """Between steps: look whether devices were lost, and go on without them; end a recovery that was cut short."""
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
        """Go on with the devices that are left, from the last snapshot, and repeat the steps since then. lost: devices
        that are lost; None for those that do not answer now.

        Raises PlacerError where there is no snapshot. Where it is cut short, by Ctrl-C for example, it begins anew with
        the next call, and before anybody reads a variable.
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
        """Recover from a loss that showed while the user read variables; returns whether it was one. error: what was
        raised; None to end a recovery that was cut short.
        """
        if self._is_running or not (error is None or self.is_loss(error)):
            return False
        self._log.keep_writes()
        self.recover()
        return True

    def _recover(self, found: Sequence[str] | None) -> Loss:
        new = self._connection.lost() if found is None else tuple(found)
        begin, lost, snapshot = self._clock(), new, self._log.snapshot
        if self._replicas.is_void:  # what a recovery that was cut short had found lost is only missing now
            lost = tuple(dict.fromkeys((*self._connection.missing, *new)))
        if snapshot is None:
            what = f"{', '.join(lost)} was lost" if lost else "a call did not reach a worker"
            raise PlacerError(f"{what} before the first snapshot; start the training again.")
        repeated, forgotten = len(self._log.steps), self._log.unrepeatable
        self._dropped = self._dropped or dropped_by_joining()  # by one that was cut short, too
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
        """Leave lost devices, with whatever others the connection cannot keep without them."""
        for member in self._members():
            member.pause()
        self._connection.go_on_without(lost)

    def _repeat(self) -> None:
        """With variables as in the snapshot: build on the devices that are left, and take all logged steps again."""
        with waiting("the training was recovered", first=True):
            for member in self._members():
                member.rebuild()
            self._log.replay()
