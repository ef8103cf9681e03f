"""A session of devices: the connection to them, the replicas of variables, and the recovery after a loss.

All steps that a program places share one session because TensorFlow joins one set of workers in a process, and because
a variable has one current value (docs/decisions/009-coherence.md).
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import tensorflow as tf

from placer.devices.cluster import Devices
from placer.devices.workers import leftovers
from placer.errors import BadInputError, PlacerError
from placer.graph.memory_limits import NO_LIMITS, MemoryLimits
from placer.train.background import AT_EXIT_S, BackgroundThread
from placer.train.connection import SILENT_S, Connection
from placer.train.member import Member
from placer.train.recovery import Recovery
from placer.train.variables.replicas import Replicas
from placer.train.variables.step_log import StepLog

CLOSE_LIMIT_S = 60.0  # for work in the background to end
Entry = weakref.ref[Member]
"""A live step among those of a session."""


class DeviceSession:
    """The devices and variables of live steps. The training thread holds `lock` whenever it uses TensorFlow."""

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
        self.sync_every: int | None = None  # most steps between two snapshots; None: `StepLog.is_due` decides
        self._members: list[Entry] = []
        self.runs_untouched = False  # whether one of its steps now runs on the user's own variables
        self._joined_in: int | None = None  # the process that joined the devices, which a forked child must not leave
        self._is_forsaken = False  # whether the last member left in a thread beside the program's own

    @classmethod
    def of(cls, spec: str | None, include_local: bool, max_memory: MemoryLimits = NO_LIMITS) -> DeviceSession:
        """Return the session of these devices, which all steps share. Raises BadInputError if other workers are joined,
        or if a step was wrapped before with other memory limits for these devices.
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
        """Close the sessions whose last step the program dropped, and so leave their workers."""
        for session in [session for session in cls._open.values() if session._is_forsaken and not session.members]:
            session._close()

    @property
    def members(self) -> list[Member]:
        """The live steps on these devices. The session holds only weak references to them, because a step may refer to
        the object that holds it, and would then never be freed.
        """
        with self.lock:
            return [member for entry in self._members if (member := entry()) is not None]

    def enter(self, member: Member) -> Entry:
        """Add a live step on these devices. Returns the entry that identifies it in `dropped` once it is gone."""
        entry: Entry = weakref.ref(member)
        with self.lock:
            self._members.append(entry)
        return entry

    @property
    def devices(self) -> Devices | None:
        """The present devices; None before `join`, or while all of them are lost."""
        return self.connection.devices

    @property
    def present(self) -> Devices:
        """The present devices. Raises PlacerError if there are none."""
        if self.devices is None:
            raise PlacerError("no device is there.")
        return self.devices

    @property
    def missing(self) -> tuple[str, ...]:
        """The devices that were lost, and are not joined again yet."""
        return self.connection.missing

    @property
    def generation(self) -> int:
        """A count of how often devices were joined or left. What was built under another generation must never be
        called.
        """
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
        """Whether the devices are left until the next `join`. Until then steps run as if there were no devices, and no
        variable is watched.
        """
        return self.connection.is_away

    def prepare(self) -> None:
        """As `Connection.prepare`."""
        self.connection.prepare()

    def join(self) -> Devices:
        """Join all devices to this process and return them; only the training thread, between steps. Raises as
        `Connection.join`, and BadInputError if another session uses workers or already keeps one of the variables.
        """
        if self.connection.is_joined:
            return self.connection.join()
        self._refuse_beside_workers()
        for member in self.members:  # no other thread may use TensorFlow meanwhile
            member.finish()
        joined = self.connection.join()
        self._joined_in = os.getpid()
        atexit.unregister(self._end_with_program)
        atexit.register(self._end_with_program)  # runs before what ends the workers, because it is registered later
        for member in self.members:
            self.adopt(member.variables)
        return joined

    def _refuse_beside_workers(self) -> None:
        """Raise BadInputError if another session has devices, and this session or that one joins workers. Joining,
        resting and leaving give all variables of the program new storage, unknown to what the other session built.
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
        they cannot be left; None if they are left.
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
        """Free what belonged to a member that needs no device any more; between steps. Also leave the devices if
        `leaves` is true, no other member needs them, and no reader that cannot be stopped uses variables.
        """
        if self.is_away or not self.connection.is_joined:
            self.disown(self.replicas.kept)  # from when its steps were recorded
            return
        if self.fragile:
            self.save()  # as in `leave`
        if self.replicas.aside or not leaves or self.go_away() is not None:
            self.release()

    def leave(self, member: Member) -> None:
        """Remove a live step. With the last one the devices are closed, and variables are no longer watched."""
        for entry in [entry for entry in self._members if entry() is member]:
            self._take_out(entry)
        if not self.members:
            self._close()
        elif not self.is_away:
            self.disown(self.replicas.kept)
            self.release()

    def dropped(self, entry: Entry) -> None:
        """Remove a live step that the program dropped, whether it is freed already or at Python's next garbage
        collection. Called in a thread beside the program's own; call `end_if_unused` next.
        """
        with self.lock:
            if entry in self._members:
                self._take_out(entry)
                self.release()

    def end_if_unused(self) -> None:
        """Close the session if no live step is left. Called in a thread beside the program's own, which may be writing
        variables. Leaving workers would give all variables new storage, so workers stay joined until the program asks
        for devices again (`of`) or ends.
        """
        with self.lock:
            if self.members:
                return
            self._is_forsaken = self.connection.leaves
            if self._is_forsaken:
                self.replicas.close()
            else:
                self._close()

    def end_thread(self, thread: BackgroundThread, member: Member | None = None) -> None:
        """End the background thread of a live step. Work that does not end is abandoned. member: the live step; None if
        it was dropped.
        """
        if thread.close(CLOSE_LIMIT_S):
            return
        if all(other is member for other in self.members):  # else another live step still trains on the workers
            self.connection.end_workers()  # the work may wait for a worker that no longer answers
        thread.finish(CLOSE_LIMIT_S)

    def _take_out(self, entry: Entry) -> None:
        if self.fragile:
            self.save()  # logged steps of a member that left cannot be repeated
        else:
            self.replicas.pull()  # else its replicas could not be freed where they alone are up to date
        self._members.remove(entry)

    def _end_with_program(self) -> None:
        """At the program's end, leave the workers before they are ended. Handlers of `atexit` that run later, such as
        one that saves weights, then find the user's variables up to date, and need no worker.

        If a worker is lost, or a thread holds the lock, nothing is done: the first read of a variable recovers.
        """
        is_joined = self.fragile and self.connection.is_joined and not self.is_away
        if not is_joined or self._joined_in != os.getpid() or not self.lock.acquire(timeout=AT_EXIT_S):
            return
        try:
            with suppress(Exception):
                if not self.connection.lost(SILENT_S):
                    self.replicas.pull()
                    for member in self.members if self.connection.refusal("left") is None else ():
                        member.end(AT_EXIT_S)
        finally:
            self.lock.release()

    def _close(self) -> None:
        atexit.unregister(self._end_with_program)
        try:
            self.replicas.close()
            self.connection.close()
        finally:
            key = self.connection.spec, self.connection.include_local
            if self._open.get(key) is self:  # not a session that was made after an interrupted `_close`
                del self._open[key]

    # Steps and variables.

    def adopt(self, variables: Iterable[tf.Variable]) -> None:
        """Keep these variables up to date from now on, and include them in the next snapshot."""
        if self.replicas.adopt(variables):
            self.log.is_stale = True

    def disown(self, variables: Iterable[tf.Variable]) -> None:
        """Stop keeping those of `variables` that no member needs."""
        needed = {id(variable) for member in self.members for variable in member.variables}
        needed |= {key for member in self.members for use in member.uses for key in use.keys}
        left = [variable for variable in variables if id(variable) not in needed]
        self.replicas.disown(left)
        self.log.disown(left)

    def before_placed(self) -> None:
        """Before a placed step: save what a recovery needs if a device is lost during the step."""
        if self.fragile:
            self.log.before_step()

    def after_placed(self, repeat: Callable[[], None], tensors: Sequence[Any], step_s: float) -> None:
        """After a placed step on flat `tensors`, which took `step_s` seconds: log it, and take a snapshot when one is
        due. repeat: runs the step again.
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
        """After a step that trained the user's own variables, which were up to date before the step."""
        self.replicas.after_untouched()
        self.log.is_stale = True

    def release(self) -> None:
        """Free the replicas that no placed step of any member needs."""
        self.replicas.drop_unused([use for member in self.members for use in member.uses])

    def save(self) -> None:
        """Take a snapshot of all variables; this also brings the user's own up to date."""
        self.log.save()

    # Devices that may be lost, and that come back.

    def suspect(self) -> None:
        """Have the next step check whether a device was lost, because something failed in a way that may mean so."""
        self.recovery.is_due = True

    def back(self) -> tuple[str, ...]:
        """The missing devices that answer again and should be joined now; see `Connection.back`."""
        return self.connection.back()

    @property
    def given_up(self) -> dict[str, str]:
        """The missing devices that are no longer tried, and why."""
        return self.connection.given_up

    def rejoin(self) -> str | None:
        """Join the devices that came back, with those that are present. Training goes on from its current state.
        Returns why nothing was joined; None if the devices were joined.
        """
        with self.lock:
            return self._joined_by(self.connection.rejoin, lambda: self.connection.refusal("joined"))

    @property
    def keeps_much(self) -> bool:
        """Whether workers still keep so much of closed steps that it is time to `join_anew`."""
        return self.fragile and not self.missing and leftovers.are_many()

    def join_anew(self) -> str | None:
        """Leave the workers, none of which is missing, and join them again, as `Connection.join_anew` does. Training
        goes on from its current state. Returns why the workers were not joined again; None if they were. The training
        thread only, between steps.
        """
        with self.lock:
            return self._joined_by(self.connection.join_anew, self.connection.why_stay)

    def _joined_by(self, join: Callable[[], None], refused: Callable[[], str | None]) -> str | None:
        """Connect this process to devices by `join`, unless `refused` gives a reason. Returns that reason, or None."""
        why = refused()
        if why is not None:
            return why
        self.save()
        for member in self.members:
            member.pause()
        try:
            join()
        finally:  # what was on the devices is invalid, even if `join` failed
            self.replicas.lose()
            self._rebuild()
        return None

    def _rebuild(self) -> None:
        try:
            for member in self.members:
                member.rebuild()
        except tf.errors.OpError as error:  # a device was lost again, which shows only now
            if not self.recovery.is_loss(error):
                raise
            self.recovery.recover()
