"""A session of devices: the devices joined, the replicas of variables on them, and how training outlives a device.

All steps that a program places share one session because TensorFlow joins one set of workers in a process, and because
a variable has one true value (docs/decisions/009-coherence.md).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import tensorflow as tf

from placer.devices.cluster import Devices, open_devices
from placer.devices.logical import division
from placer.devices.reconnect import Reconnection
from placer.devices.workers import Workers, start_workers
from placer.errors import BadInputError, PlacerError
from placer.train.replicas import Replicas
from placer.train.variable_hooks import renew_all

SYNC_SHARE = 0.003  # of the training time may go into snapshots, where the user does not say how many steps apart
LEAST_STEPS = 16  # between two snapshots
MOST_LOG_BYTES = 512 * 2**20
NOTICE_S, POLL_S = 3.0, 0.02  # how long a dying process may take to look dead
MOST_REPAIRS = 10  # of one loss, where more devices go during each
RPC_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.InternalError,
    tf.errors.UnknownError,
    tf.errors.DeadlineExceededError,
)  # what a device that is going down may cause; others are the step's own


class Member(Protocol):
    """What a session needs of a live step when devices are lost or come back."""

    def pause(self) -> None:
        """Cancel work in the background that has not begun, and wait for the rest."""

    def finish(self) -> None:
        """Wait for all work in the background."""

    def rebuild(self) -> None:
        """Forget what was built; build what steps need on the devices that are left."""

    def again(self, key: Any, tensors: Sequence[Any]) -> None:
        """Repeat one of the steps lost."""


@dataclass(frozen=True)
class Logged:
    """A step taken since the last snapshot, and what the user had written to variables before it."""

    member: Member
    key: Any
    tensors: Sequence[Any]
    writes: dict[int, Any]


@dataclass(frozen=True)
class Loss:
    """What a loss cost."""

    lost: tuple[str, ...]  # devices
    repeated: int  # steps, from the snapshot
    forgotten: int  # steps that could not be repeated
    seconds: float


class DeviceSession:
    """Devices and variables; all use of TensorFlow by the training thread goes on under `lock`."""

    _open: ClassVar[dict[tuple[str | None, bool], DeviceSession]] = {}

    def __init__(self, spec: str | None, include_local: bool, clock: Callable[[], float] = time.perf_counter) -> None:
        self.spec, self.include_local, self.clock = spec, include_local, clock
        self.lock = threading.RLock()
        self.replicas = Replicas(self.lock, self._mended)
        self.devices: Devices | None = None  # until `join`, or while none of them is left
        self.generation = 0  # how often devices were joined; what was built under another one must never be called
        self.sync_every: int | None = None  # steps between snapshots at most; None: SYNC_SHARE of the time
        self.members: list[Member] = []
        self.losses: list[Loss] = []
        self._recovering = False
        self.missing: tuple[str, ...] = ()
        self.suspected = False  # whether work in the background met what may be a loss
        self._revivals: list[Reconnection] = []
        self._workers: Workers | None = None
        self._whole: Devices | None = None
        self._snapshot: dict[int, Any] | None = None
        self._snapshot_s = 0.0
        self._log: list[Logged] = []
        self._log_bytes = 0
        self._forgotten = 0  # steps since the snapshot that cannot be repeated
        self._pending: dict[int, Any] = {}  # what the user wrote since the last step logged
        self._stale = False  # whether the log does not tell all that happened since the snapshot
        self._preparing = threading.Lock()

    @classmethod
    def of(cls, spec: str | None, include_local: bool) -> DeviceSession:
        """The session of these devices, shared by all steps. Raises BadInputError where other workers are joined."""
        if (spec, include_local) not in cls._open:
            other = next((s.spec for s in cls._open.values() if s.spec is not None), None)
            if spec is not None and other is not None:
                raise BadInputError(
                    f"devices {spec!r}: this program has joined {other!r}, and TensorFlow joins one set of workers; "
                    "pass the same devices to all steps, or close() the others first."
                )
            cls._open[spec, include_local] = cls(spec, include_local)
        return cls._open[spec, include_local]

    @property
    def present(self) -> Devices:
        """The devices that are there. Raises PlacerError before `join`, or where all were lost."""
        if self.devices is None:
            raise PlacerError("no device is there.")
        return self.devices

    @property
    def joins(self) -> bool:
        """Whether the devices are, or will be, other processes that this one joins."""
        return self.spec is not None and division(self.spec) is None

    @property
    def fragile(self) -> bool:
        """Whether devices are other processes, which may get lost."""
        return bool(self._whole and self._whole.addresses)

    def prepare(self) -> None:
        """Do what takes long before joining; any thread. Raises BadInputError for devices that cannot be."""
        count = (self.spec or "").removeprefix("workers:")
        with self._preparing:
            wanted = self._workers is None and self._whole is None and (self.spec or "").startswith("workers:")
            if wanted and count.isdigit():
                self._workers = start_workers(int(count))

    def join(self) -> Devices:
        """The devices, joined to this process; only the training thread, between steps."""
        if self._whole is None:
            for member in self.members:  # nobody else may use TensorFlow meanwhile
                member.finish()
            self.devices = self._whole = open_devices(
                self.spec, include_local=self.include_local, links=False, resilient=True, workers=self._workers
            )
            self.generation += 1
            if self.fragile:
                renew_all()
        return self._whole

    def adopt(self, variables: Iterable[tf.Variable]) -> None:
        """Keep these variables true from now on, and include them in the next snapshot."""
        if self.replicas.adopt(variables):
            self._stale = True

    def untouched_ran(self) -> None:
        """A step has trained the user's own variables, which were true before."""
        self.replicas.untouched_ran()
        self._stale = True

    def before_placed(self) -> None:
        """Before a placed step: keep all that recovering from a loss during it needs."""
        if not self.fragile:
            return
        if self._stale:
            self.save()
        else:
            self._pending.update(self.replicas.writes())

    def look(self) -> None:
        """Between steps: check whether devices were lost, as background work suspects, and go on without them."""
        self.suspected = False
        if self.fragile and self.devices is not None and self.devices.lost():
            self.before_placed()
            if self.devices is not None and self.devices.lost():
                self.recover()

    def broke_off(self) -> None:
        """A step failed half-way: it may have written some variables, and cannot be repeated."""
        self._stale = True

    def ran(self, member: Member, key: Any, tensors: Sequence[Any], step_s: float) -> None:
        """After a placed step: log it, and take a snapshot when one is due."""
        if not self.fragile:
            return
        if any(tensor.dtype in (tf.resource, tf.variant) for tensor in tensors):  # an iterator: it has moved on
            self._forgotten += 1
        else:
            self._log.append(Logged(member, key, tensors, self._pending))
            self._log_bytes += sum(_bytes(tensor) for tensor in (*tensors, *self._pending.values()))
            self._pending = {}
        if len(self._log) + self._forgotten >= self._due(step_s) or self._log_bytes > MOST_LOG_BYTES:
            self.save()

    def save(self) -> None:
        """Take a snapshot of all variables; also makes the user's true."""
        begin = self.clock()
        self._snapshot = self.replicas.snapshot()
        self._snapshot_s = self.clock() - begin
        self.replicas.writes()
        self._log, self._pending = [], {}
        self._log_bytes = self._forgotten = 0
        self._stale = False

    def is_loss(self, error: BaseException) -> bool:
        """Whether a lost device caused an error; waits a moment for a process that is dying."""
        return self.fragile and isinstance(error, tf.errors.OpError) and self._gone(error) is not None

    def recover(self) -> None:
        """Go on with the devices that are left, from the last snapshot, and repeat the steps since then.

        Raises PlacerError where there is no snapshot.
        """
        self._recovering = True
        try:
            self.losses.append(self._recovered())
        finally:
            self._recovering = False

    def _mended(self, error: BaseException) -> bool:
        """Go on after a loss that showed while the user read variables; returns whether there was one."""
        if self._recovering or not self.is_loss(error):
            return False
        self._pending.update(self.replicas.writes())
        self.recover()
        return True

    def _recovered(self) -> Loss:
        begin, gone = self.clock(), tuple(self.devices.lost() if self.devices is not None else ())
        if self._snapshot is None:
            raise PlacerError(f"{', '.join(gone)} was lost before the first snapshot; start the training again.")
        log, forgotten, pending = list(self._log), self._forgotten, dict(self._pending)
        new = gone
        for repair in range(MOST_REPAIRS):
            self._leave(new)
            try:
                self._repeat(log, pending)
                break
            except tf.errors.OpError as error:
                more = self._gone(error)
                if more is None or repair == MOST_REPAIRS - 1:
                    raise
                new, gone = more, gone + more
        return Loss(gone, len(log), forgotten, self.clock() - begin)

    def _repeat(self, log: Sequence[Logged], pending: dict[int, Any]) -> None:
        """From the snapshot to where the training was."""
        for member in self.members:
            member.rebuild()
        for entry in log:
            self.replicas.overwrite(entry.writes)
            entry.member.again(entry.key, entry.tensors)
        self.replicas.overwrite(pending)
        self.save()

    def is_back(self) -> bool:
        """Whether all lost devices answer again."""
        return bool(self._revivals) and all(revival.done() for revival in self._revivals)

    def rejoin(self) -> None:
        """Take devices that came back in again. Training goes on from the state it is in."""
        with self.lock:
            self._rejoin()

    def _rejoin(self) -> None:
        assert self._whole is not None
        self.save()
        for member in self.members:
            member.pause()
        try:
            self.devices = (self.devices or self._whole).rejoined()
        except PlacerError:  # gone again
            self._revivals = [self._whole.revive(self._whole.lost())]
            return
        self._revivals, self.missing = [], ()
        self._joined_anew()
        try:
            for member in self.members:
                member.rebuild()
        except tf.errors.OpError as error:  # gone again, and noticed late
            if not self.is_loss(error):
                raise
            self.recover()

    def leave(self, member: Member) -> None:
        """Take a step out; with the last one the devices are closed and the user's variables no longer watched."""
        if self.fragile and member in self.members:
            self.save()  # nobody can be asked to repeat steps of one who left
        if member in self.members:
            self.members.remove(member)
        if not self.members:
            self.replicas.close()
            if self._whole is not None:
                self._whole.close()
                if self._whole.workers is not None:  # joined to dead workers, nothing new can be compiled
                    tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec({}))
                    renew_all()
            elif self._workers is not None:
                self._workers.close()
            self._open.pop((self.spec, self.include_local), None)

    def _leave(self, gone: Sequence[str]) -> None:
        """Join the devices that are left; with none, training goes on in this process."""
        for member in self.members:
            member.pause()
        assert self._whole is not None and self._snapshot is not None
        new = [name for name in gone if name not in self.missing]
        self.missing += tuple(new)
        try:
            self.devices = self._whole.without(self.missing)
        except PlacerError:
            self.devices = None
        if new:
            self._revivals.append(self._whole.revive(new))
        self._joined_anew()
        self.replicas.restore(self._snapshot)

    def _joined_anew(self) -> None:
        self.generation += 1
        renew_all()
        self.replicas.lose()

    def _gone(self, error: tf.errors.OpError) -> tuple[str, ...] | None:
        """The devices whose loss caused an error; empty where a worker was restarted unnoticed, None where the error
        has another cause.
        """
        if not isinstance(error, RPC_ERRORS):
            return None
        deadline = self.clock() + NOTICE_S
        while self.devices is not None and self.clock() < deadline:
            lost = self.devices.lost()
            if lost:
                return lost
            if "context_id" in str(error):
                return ()
            time.sleep(POLL_S)
        return None

    def _due(self, step_s: float) -> int:
        """Steps between two snapshots."""
        if self.sync_every is not None:
            return self.sync_every
        return max(LEAST_STEPS, math.ceil(self._snapshot_s / (SYNC_SHARE * max(step_s, 1e-6))))


def _bytes(tensor: Any) -> int:
    return int(tensor.dtype.size * (tensor.shape.num_elements() or 0))
