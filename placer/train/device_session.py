"""A session of devices: the connection to them, the replicas of variables, and the way back after a loss.

All steps that a program places share one session because TensorFlow joins one set of workers in a process, and because
a variable has one true value (docs/decisions/009-coherence.md).
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import tensorflow as tf

from placer.devices.cluster import Devices
from placer.devices.workers import leftovers
from placer.errors import BadInputError, PlacerError
from placer.graph.memory_limits import NO_LIMITS, MemoryLimits
from placer.train.connection import Connection
from placer.train.member import Member
from placer.train.recovery import Recovery
from placer.train.variables.replicas import Replicas
from placer.train.variables.step_log import StepLog

Entry = weakref.ref[Member]
"""A live step among those of a session."""


class DeviceSession:
    """Devices and variables; all use of TensorFlow by the training thread goes on under `lock`."""

    _open: ClassVar[dict[tuple[str | None, bool], DeviceSession]] = {}

    def __init__(
        self,
        spec: str | None,
        include_local: bool,
        clock: Callable[[], float] = time.perf_counter,
        max_memory: MemoryLimits = NO_LIMITS,
    ) -> None:
        self.clock = clock
        self.lock = threading.RLock()
        self.connection = Connection(spec, include_local, clock, max_memory)
        self.replicas = Replicas(self.lock, lambda error: self.recovery.mend(error))
        self.log = StepLog(self.replicas, clock)
        self.recovery = Recovery(self.connection, self.replicas, self.log, lambda: self.members, clock)
        self.sync_every: int | None = None  # steps between snapshots at most; None: as `StepLog.is_due` finds
        self._members: list[Entry] = []
        self.runs_untouched = False  # whether a step of it runs now, on the user's own variables
        self._is_forsaken = False  # whether the last member left beside the program's own thread

    @classmethod
    def of(cls, spec: str | None, include_local: bool, max_memory: MemoryLimits = NO_LIMITS) -> DeviceSession:
        """The session of these devices, shared by all steps. Raises BadInputError where other workers are joined, and
        where a step was wrapped with other memory limits of these devices.
        """
        cls._end_forsaken()
        if (spec, include_local) not in cls._open:
            other = next((named for named, _ in cls._open if named is not None), None)
            if spec is not None and other is not None:
                raise BadInputError(
                    f"devices {spec!r}: this program has joined {other!r}, and TensorFlow joins one set of workers; "
                    "pass the same devices to all steps, or close() the others first."
                )
            cls._open[spec, include_local] = cls(spec, include_local, max_memory=max_memory)
        found = cls._open[spec, include_local]
        if found.connection.max_memory != max_memory:
            raise BadInputError(
                "max_memory is another than that of a step that was wrapped before, and both share their devices; pass "
                "the same to all steps."
            )
        return found

    @classmethod
    def _end_forsaken(cls) -> None:
        """Leave the workers of steps that are gone."""
        for session in [session for session in cls._open.values() if session._is_forsaken and not session.members]:
            session._close()

    @property
    def members(self) -> list[Member]:
        """The live steps on these devices. They are not held here, because a step may lead to the object that holds it,
        and would never be dropped.
        """
        with self.lock:
            return [member for entry in self._members if (member := entry()) is not None]

    def enter(self, member: Member) -> Entry:
        """Another live step is made for these devices. Returns what it is known by once it is gone."""
        entry: Entry = weakref.ref(member)
        with self.lock:
            self._members.append(entry)
        return entry

    @property
    def devices(self) -> Devices | None:
        """The devices that are there; None before `join`, or while none of them is left."""
        return self.connection.devices

    @property
    def present(self) -> Devices:
        """The devices that are there. Raises PlacerError where there is none."""
        if self.devices is None:
            raise PlacerError("no device is there.")
        return self.devices

    @property
    def missing(self) -> tuple[str, ...]:
        """The devices that were lost, and are not joined again yet."""
        return self.connection.missing

    @property
    def generation(self) -> int:
        """How often devices were joined; what was built under another generation must never be called."""
        return self.connection.generation

    @property
    def fragile(self) -> bool:
        """Whether devices are other processes, which may get lost."""
        return self.connection.fragile

    @property
    def shares_cores(self) -> bool:
        """Whether devices compute on cores of this machine."""
        return not self.fragile or (self.devices is not None and self.devices.workers is not None)

    @property
    def is_away(self) -> bool:
        """Whether the devices were left, until `join`: steps run as if there were none, and no variable is watched."""
        return self.connection.is_away

    def prepare(self) -> None:
        """As `Connection.prepare`."""
        self.connection.prepare()

    def join(self) -> Devices:
        """All devices, joined to this process; only the training thread, between steps. Raises as `Connection.join`,
        and BadInputError where steps on other devices keep a variable by now.
        """
        if self.connection.is_joined:
            return self.connection.join()
        self._refuse_beside_workers()
        for member in self.members:  # nobody else may use TensorFlow meanwhile
            member.finish()
        joined = self.connection.join()
        for member in self.members:
            self.adopt(member.variables)
        return joined

    def _refuse_beside_workers(self) -> None:
        """Raises BadInputError where one session joins workers, and another one has devices: joining, resting and
        leaving give all variables of the program new storage, which what the other one built does not know.
        """
        self._end_forsaken()
        for other in self._open.values():
            if other is self or not (other.connection.is_joined or other.is_away):
                continue
            if self.connection.joins_workers or other.connection.joins_workers:
                named = "this process's devices" if other.connection.spec is None else repr(other.connection.spec)
                raise BadInputError(
                    f"another step of this program is placed on {named}, and steps on workers need a program of their "
                    "own; pass the same devices to all steps, or close() the others first."
                )

    def go_away(self) -> str | None:
        """Leave the devices until `join`, if no member needs them; only the training thread, between steps. Returns why
        they cannot be left, None where they are.
        """
        if self.is_away:
            return None
        if self.missing or not self.connection.is_joined:
            return "some of them are missing"
        if not all(member.is_resting for member in self.members):
            return "another step of this program uses them"
        self.replicas.pull()
        for member in self.members:
            member.pause()
            member.rebuild()
        self.release()
        why = self.connection.go_away()
        if why is None:
            self.replicas.close()
            self.log.forget()
        return why

    def let_go(self, *, leaves: bool = True) -> None:
        """A member needs no device any more: free what was its own, and leave them if it `leaves` and no other needs
        them; between steps. They are not left while somebody reads variables who cannot be stopped meanwhile.
        """
        if self.is_away or not self.connection.is_joined:
            self.disown(self.replicas.kept)  # from when its steps were recorded
            return
        if self.fragile:
            self.save()  # as in `leave`
        if self.replicas.aside or not leaves or self.go_away() is not None:
            self.release()

    def leave(self, member: Member) -> None:
        """Take a step out; with the last one the devices are closed and the user's variables no longer watched."""
        for entry in [entry for entry in self._members if entry() is member]:
            self._take_out(entry)
        if not self.members:
            self._close()
        elif not self.is_away:
            self.disown(self.replicas.kept)
            self.release()

    def dropped(self, entry: Entry) -> None:
        """A step is gone because the program dropped it, or will be with Python's next collection of garbage. In a
        thread beside the program's own; `end_if_unused` is to follow.
        """
        with self.lock:
            if entry in self._members:
                self._take_out(entry)
                self.release()

    def end_if_unused(self) -> None:
        """As the end of `leave`, in a thread beside the program's own, which may be writing variables. Leaving workers
        would give all of them new storage, so workers stay joined until the program asks for devices again (`of`), or
        ends.
        """
        with self.lock:
            if self.members:
                return
            self._is_forsaken = self.connection.leaves
            if self._is_forsaken:
                self.replicas.close()
            else:
                self._close()

    def _take_out(self, entry: Entry) -> None:
        if self.fragile:
            self.save()  # nobody can be asked to repeat steps of one who left
        else:
            self.replicas.pull()  # no replica of its own has to be kept for the truth that it holds
        self._members.remove(entry)

    def _close(self) -> None:
        try:
            self.replicas.close()
            self.connection.close()
        finally:
            key = self.connection.spec, self.connection.include_local
            if self._open.get(key) is self:  # not one that was made after a `_close` that was cut short
                del self._open[key]

    # Steps and variables.

    def adopt(self, variables: Iterable[tf.Variable]) -> None:
        """Keep these variables true from now on, and include them in the next snapshot."""
        if self.replicas.adopt(variables):
            self.log.is_stale = True

    def disown(self, variables: Iterable[tf.Variable]) -> None:
        """Keep those of these variables no longer that no member needs."""
        needed = {id(variable) for member in self.members for variable in member.variables}
        needed |= {key for member in self.members for use in member.uses for key in use.keys}
        left = [variable for variable in variables if id(variable) not in needed]
        self.replicas.disown(left)
        self.log.disown(left)

    def before_placed(self) -> None:
        """Before a placed step: keep all that recovering from a loss during it needs."""
        if self.fragile:
            self.log.before_step()

    def after_placed(self, repeat: Callable[[], None], tensors: Sequence[Any], step_s: float) -> None:
        """After a placed step on flat `tensors`, which took `step_s` seconds: log it, and take a snapshot when one is
        due. repeat: runs it again.
        """
        if not self.fragile:
            return
        self.log.add(tensors, repeat)
        if self.log.is_due(step_s, self.sync_every):
            self.save()

    def after_failed(self) -> None:
        """After a placed step that raised half-way: it may have written some variables, and cannot be repeated."""
        self.log.is_stale = True

    def after_untouched(self) -> None:
        """After a step that trained the user's own variables, which were true before."""
        self.replicas.after_untouched()
        self.log.is_stale = True

    def release(self) -> None:
        """Free the replicas that no placed step of any member needs."""
        self.replicas.drop_unused([use for member in self.members for use in member.uses])

    def save(self) -> None:
        """Take a snapshot of all variables; also makes the user's true."""
        self.log.save()

    # Devices that may be lost, and that come back.

    def suspect(self) -> None:
        """Have the next step find out whether a device was lost: something met what may be a loss."""
        self.recovery.is_due = True

    def back(self) -> tuple[str, ...]:
        """The missing devices that answer again and should be joined now; see `Connection.back`."""
        return self.connection.back()

    @property
    def given_up(self) -> dict[str, str]:
        """Missing devices that are not tried again, and why."""
        return self.connection.given_up

    def rejoin(self) -> str | None:
        """Take devices that came back in again, those that are there. Training goes on from the state it is in. Returns
        why nothing was joined, None where it was.
        """
        with self.lock:
            return self._joined_by(self.connection.rejoin, lambda: self.connection.refusal("joined"))

    @property
    def keeps_much(self) -> bool:
        """Whether workers keep so much of steps that were closed that it is time to `join_anew`."""
        return self.fragile and not self.missing and leftovers.are_many()

    def join_anew(self) -> str | None:
        """Join workers anew, none of which is missing, as `Connection.join_anew` does. Training goes on from the state
        it is in. Returns why they were not, None where they were. The training thread only, between steps.
        """
        with self.lock:
            return self._joined_by(self.connection.join_anew, self.connection.why_stay)

    def _joined_by(self, join: Callable[[], None], refused: Callable[[], str | None]) -> str | None:
        """Let `join` connect this process to devices; returns why it must not, where it is refused."""
        why = refused()
        if why is not None:
            return why
        self.save()
        for member in self.members:
            member.pause()
        try:
            join()
        finally:  # what was on the devices is void, whether all of them are there or not
            self.replicas.lose()
            self._rebuild()
        return None

    def _rebuild(self) -> None:
        try:
            for member in self.members:
                member.rebuild()
        except tf.errors.OpError as error:  # lost again, and noticed late
            if not self.recovery.is_loss(error):
                raise
            self.recovery.recover()
