"""The connection to the devices of a session: joins them, goes on without lost ones, leaves them for a while."""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import tensorflow as tf

from placer.devices.cluster import Devices
from placer.devices.connecting import times_connected
from placer.devices.joining import disconnect, leave_living
from placer.devices.opening import open_devices, start_own
from placer.devices.process_resources import dropped_by_joining, refusal, remedy
from placer.devices.ray.ray_workers import RayWorkers
from placer.devices.specs import logical_devices
from placer.devices.workers.deadline import LOST_ERRORS, drop_deadlines, kept_by, waiting
from placer.devices.workers.reconnect import Reconnection
from placer.devices.workers.worker_watch import WorkerWatch
from placer.devices.workers.workers import Workers
from placer.errors import BadInputError, PlacerError, warn
from placer.graph.memory_limits import NO_LIMITS, MemoryLimits
from placer.train.variables import other_threads
from placer.train.variables.hooks import renew_all

NOTICE_S, POLL_S = 3.0, 0.02  # how long a dying process may take to look dead; time between two looks
# Even if no worker is lost, a call may fail to reach one: gRPC's connection to it broke, or the call was cut off on its
# way. The call is made again, but at most MOST_AGAIN times within AGAIN_S.
BY_GRPC, UNREAD = "GRPC error information", "Unable to parse request"
MOST_AGAIN, AGAIN_S = 3, 60.0
# Between steps, a device at whose address nothing answers counts as lost after SILENT_S. If several devices were lost,
# those that are back wait up to OTHERS_S for the others, because each joining takes seconds.
SILENT_S, OTHERS_S = 3.0, 10.0
# Each time that workers are left and joined again, TensorFlow keeps 8 threads (0.4 MB) here and 4 in each worker, for
# as long as the process lives.
MOST_LEAVES = 100


class Connection:
    """The connection to the devices named by `spec`. Each change of `generation` invalidates what was built and all
    values in other processes; no other thread may use TensorFlow meanwhile.
    """

    def __init__(
        self,
        spec: str | None,
        include_local: bool,
        clock: Callable[[], float] = time.perf_counter,
        max_memory: MemoryLimits = NO_LIMITS,
    ) -> None:
        """spec, include_local, max_memory: as for `open_devices`. clock: seconds."""
        self.spec, self.include_local, self.max_memory = spec, include_local, max_memory
        self.devices: Devices | None = None  # the present ones: None before `join`, or while all of them are lost
        self.missing: tuple[str, ...] = ()  # lost, and not joined again yet
        self.generation = 0  # how often devices were joined or left
        self.is_away = False  # whether the devices are left until the next `join`
        self.workers: Workers | RayWorkers | None = None  # started by `prepare`
        self._whole: Devices | None = None
        self._is_watching = False
        self._reconnections: list[Reconnection] = []
        self._some_back_s: float | None = None  # since when devices that are back wait for others
        self._preparing = threading.Lock()
        self._leaves = 0
        self._unreached = deque[float](maxlen=MOST_AGAIN)  # when calls did not reach a worker that was not lost
        self._clock = clock

    @property
    def whole(self) -> Devices:
        """All devices, lost ones included. Raises PlacerError before `join`."""
        if self._whole is None:
            raise PlacerError("no device is joined yet.")
        return self._whole

    @property
    def is_joined(self) -> bool:
        """Whether `join` has succeeded, and the devices were not left since."""
        return self._whole is not None and not self.is_away

    @property
    def joins_workers(self) -> bool:
        """Whether the devices are, or will be, other processes that this one joins."""
        return self.spec is not None and logical_devices(self.spec) is None

    @property
    def fragile(self) -> bool:
        """Whether devices are other processes, which may get lost; False while they are left."""
        return bool(self._whole and self._whole.addresses) and not self.is_away

    def prepare(self) -> None:
        """Start the session's own workers, because that would take long in `join`; any thread. Raises BadInputError for
        devices that cannot exist, PlacerError for workers that do not start.
        """
        with self._preparing:
            if self.workers is None and self._whole is None:
                self.workers = start_own(self.spec, self.max_memory)
            elif self.workers is not None and not self.is_joined:
                self.workers.restart_ended()

    def join(self) -> Devices:
        """Return all devices. The first call joins them to this process, and so does the first call after they were
        left.

        Raises BadInputError if joining would take from this program what it still uses, PlacerError if a device does
        not answer.
        """
        if self._whole is None or self.is_away:
            why = self.refusal("joined") if self.joins_workers else None
            if why is not None:
                raise BadInputError(f"{why}.")
            before = times_connected()
            try:
                self.prepare()
                if self.joins_workers:  # a worker may freeze while it is joined
                    self._is_watching = True
                    kept_by(WorkerWatch(self.workers if isinstance(self.workers, Workers) else None))
                found = self._opened() if self._whole is None else self._whole.join_all()
                if found.addresses:
                    renew_all()
            except BaseException:
                self._watch_no_more()
                if times_connected() != before:
                    self._leave_all()
                if self._whole is None and self.workers is not None:  # the next call starts others
                    self.workers.close()
                    self.workers = None
                raise
            self.devices = self._whole = found
            self.is_away = False
            self.generation += 1
        return self._whole

    def _opened(self) -> Devices:
        return open_devices(
            self.spec, include_local=self.include_local, links=False, resilient=True, workers=self.workers,
            max_memory=self.max_memory,
        )  # fmt: skip

    def go_away(self) -> str | None:
        """Leave the devices until the next `join`, because TensorFlow may call functions faster then: with devices
        joined, calls were 1 to 8 % slower, as measured once by hand (docs/decisions/015). The worker processes keep
        running. Returns why the devices must not be left; None if they are left.
        """
        if self.fragile:
            why = self.why_stay()
            if why is not None:
                return why
            self._leaves += 1
        self.is_away = True
        self.devices, self.missing, self._reconnections = self._whole, (), []  # the next `join` joins all
        self._some_back_s = None
        self._leave_all()
        return None

    def why_stay(self) -> str | None:
        """Why workers that are joined must not be left now; None if they may."""
        if self._leaves >= MOST_LEAVES:
            return f"they were left {self._leaves} times, and TensorFlow keeps threads of each time"
        return self.refusal("left")

    def refusal(self, done: str) -> str | None:
        """Why workers must not be joined or left now, whatever the devices; None if they may. done: "joined" or
        "left".
        """
        why = refusal(done) or other_threads.why_not(done)
        if why is not None and gc.collect():  # the object that forbids it may have been garbage
            why = refusal(done) or other_threads.why_not(done)
        return why

    def join_anew(self) -> None:
        """Leave the workers and join them again at once, so that they free what they kept of closed steps. If a worker
        does not answer, go on as `rejoin` does.
        """
        self._leaves += 1
        try:
            with waiting("the devices were left"):
                leave_living()
        except (PlacerError, *LOST_ERRORS):
            pass  # a loss shows again when they are joined
        finally:
            self.rejoin()

    def _leave_all(self) -> None:
        """Leave the workers' cluster, even if some are lost by now, and invalidate all that was on them."""
        try:
            if self.joins_workers:
                with waiting("the devices were left"):
                    self._leave(leave_living)
        finally:
            self.generation += 1
            self._watch_no_more()

    @staticmethod
    def _leave(leave: Callable[[], None]) -> None:
        try:
            leave()
        finally:  # TensorFlow has forgotten the variables even if joining or leaving failed half-way
            renew_all()

    def lost(self, silent_s: float = 0.0) -> tuple[str, ...]:
        """The devices that were present so far and do not answer now. silent_s: as for `Devices.lost`."""
        return () if self.devices is None else self.devices.lost(silent_s)

    def lost_by(self, error: BaseException) -> tuple[str, ...] | None:
        """The devices whose loss caused an error; empty if none is lost, but a worker was restarted unnoticed or a call
        did not reach it; None if the error has another cause. Waits up to NOTICE_S for a process that is dying.
        """
        if not self.fragile or not isinstance(error, LOST_ERRORS):
            return None
        deadline = self._clock() + NOTICE_S
        while self.devices is not None and self._clock() < deadline:
            lost = self.devices.lost()
            if lost:
                return lost
            if "context_id" in str(error):
                return ()
            time.sleep(POLL_S)
        return () if _is_unreached(error) and self._may_call_again() else None

    def _may_call_again(self) -> bool:
        """Whether a call that did not reach a worker may be made again. Each permission counts towards MOST_AGAIN."""
        now = self._clock()
        if len(self._unreached) == MOST_AGAIN and now <= self._unreached[0] + AGAIN_S:
            return False
        self._unreached.append(now)
        return True

    def go_on_without(self, lost: Sequence[str]) -> None:
        """Join the devices that are left, if any, and start to bring the lost ones back in the background."""
        try:
            while not self._joins_without(lost):
                lost = [name for name in self.whole.lost() if name not in self.missing]  # lost meanwhile
                if not lost:
                    self._miss_all()
                    break
        finally:
            self._joined_anew()

    def _miss_all(self) -> None:
        """Treat the other devices as missing, too, and start to bring them back: they answer, but cannot be joined."""
        left = [name for name in self.whole.addresses if name not in self.missing]
        if left:
            self.missing += tuple(left)
            self._reconnections.append(self.whole.reconnect(left))

    def _joins_without(self, lost: Sequence[str]) -> bool:
        """Join the devices other than `lost` and those missing before, and start to bring the lost ones back. Returns
        whether joining succeeded.
        """
        new = [name for name in lost if name not in self.missing]
        self.missing += tuple(new)
        try:
            self.devices = self.whole.without(self.missing)
        except PlacerError:
            self.devices = None
        finally:
            if new:
                self._reconnections.append(self.whole.reconnect(new))
        return self.devices is not None

    def back(self) -> tuple[str, ...]:
        """The missing devices that answer again and should be joined now. The first ones to come back wait until the
        others are back or given up, for at most OTHERS_S. Call this regularly, because it starts the next tries.
        """
        away = self._away()
        back = tuple(name for name in self.missing if name not in away)
        if not back:
            self._some_back_s = None
            return ()
        if self._some_back_s is None:
            self._some_back_s = self._clock()
        waits = away.keys() > self.given_up.keys() and self._clock() < self._some_back_s + OTHERS_S
        return () if waits else back

    @property
    def given_up(self) -> dict[str, str]:
        """The missing devices that are no longer tried, and why."""
        return {name: why for reconnection in self._reconnections for name, why in reconnection.given_up.items()}

    def rejoin(self) -> None:
        """Join the present devices and those that are back. If one does not answer after all, go on without it, and
        start to bring it back again.
        """
        missing, away = self.missing, self._away()
        self.missing, self._some_back_s = tuple(name for name in missing if name in away), None
        self._reconnections = [reconnection for reconnection in self._reconnections if reconnection in away.values()]
        try:
            self.devices = self.whole.without(self.missing) if self.missing else self.whole.join_all()
            self._joined_anew()
        except BaseException as error:  # TensorFlow may already have left the former devices
            lost = [name for name in self.whole.lost() if name not in self.missing]
            self.go_on_without(lost or missing)
            if not isinstance(error, PlacerError):
                raise

    def _away(self) -> dict[str, Reconnection]:
        """Device that is still away -> the reconnection that brings it back."""
        return {name: reconnection for reconnection in self._reconnections for name in reconnection.away()}

    def end_workers(self) -> None:
        """End the worker processes that were started for this session, frozen ones included."""
        if self.workers is not None:
            self.workers.close()

    @property
    def leaves(self) -> bool:
        """Whether `close` leaves workers, and so gives all variables of the program new storage."""
        return self._whole is not None and self.workers is not None and not self.is_away

    def close(self) -> None:
        """End the workers that were started for this session, and keep variables usable without them. A warning names
        what the program loses with the workers.
        """
        leaves = self.leaves
        dropped = dropped_by_joining(left=True) if leaves else None
        try:
            if leaves:
                self._leave(disconnect)  # nothing can be compiled while dead workers are joined
        finally:
            if self._whole is not None:
                self._whole.close()
            elif self.workers is not None:
                self.workers.close()
            self._watch_no_more()
        if dropped is not None:
            warn(f"the workers are left: {remedy(dropped)}.")

    def _watch_no_more(self) -> None:
        if self._is_watching:
            self._is_watching = False
            drop_deadlines()

    def _joined_anew(self) -> None:
        self.generation += 1
        renew_all()


def _is_unreached(error: BaseException) -> bool:
    """Whether gRPC says that a call did not reach a worker. Errors that the step itself raises in this process do not
    mention gRPC.
    """
    said = str(error)
    return BY_GRPC in said and (isinstance(error, tf.errors.UnavailableError) or UNREAD in said)
