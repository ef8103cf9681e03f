"""An open topology: what TensorFlow calls its devices, which of them are lost, and how they are joined again."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any
from weakref import WeakSet

from placer.devices.host.machine import cores_of_cpu, cpu_model, timed_on
from placer.devices.joining import join_workers, keep_joined_alive, leave_if_there, leave_living, reach_one_another
from placer.devices.ray.ray_workers import RayWorkers
from placer.devices.workers.addresses import Answer, answer, check_answers, listens
from placer.devices.workers.deadline import LOST_ERRORS, DeviceLostError, waiting
from placer.devices.workers.reconnect import Reconnection
from placer.devices.workers.workers import Workers
from placer.errors import BadInputError, PlacerError, listed
from placer.graph.topology import Topology

RECONNECT_S = 1.0  # after this time a worker retries another worker that it could not reach
POLL_S = 0.1  # between two checks whether a silent device answers


@dataclass
class Devices:
    """An open topology: the TensorFlow device behind each name, and the session that reaches them all.

    Workers get lost and come back (docs/decisions/008-lost-devices.md). `without`, `join_all` and `join_anew` connect
    this process again. This drops all variables and functions on workers, even on survivors, and functions made before
    must never be called again. No other thread may use TensorFlow during these calls.
    """

    topology: Topology
    tf_names: dict[str, str]  # TensorFlow's full name by device name
    host: str  # TensorFlow's name of the coordinating process's CPU
    session_target: str = ""
    workers: Workers | None = None  # worker processes started for this topology on this machine
    ray_workers: RayWorkers | None = None  # workers that Ray started for this topology
    addresses: dict[str, str] = field(default_factory=dict)  # host:port of each worker by device name, in task order
    original: Devices | None = None  # all devices, if some are left out here
    standalone: bool = False  # whether the workers knew of no other worker before they were joined
    stages_from: int | None = None  # bytes from which a batch goes to own GPUs through pinned memory; None = never
    leaves: bool = False  # whether closing takes this process out of the cluster
    runners: WeakSet[Any] = field(default_factory=WeakSet, repr=False, compare=False)  # they may keep steps on devices
    _using: ExitStack = field(default_factory=ExitStack, repr=False, compare=False)

    def __enter__(self) -> Devices:
        if self.leaves:  # even tracing a local function waits for the workers, because each is sent a copy
            self._using.enter_context(waiting("the devices were open", first=True, loose=True))
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self._using.__exit__(*error)
        finally:
            self.close()

    @cached_property
    def same_bits(self) -> bool:
        """Whether an op gives the same bits on every device and in every run. Even a single GPU does not promise this:
        it adds in any order, and its libraries choose the algorithm that is fastest at the moment.
        """
        return {device.kind for device in self.topology.devices} == {"cpu"}

    @property
    def has_local(self) -> bool:
        """Whether the coordinating process's own devices take part, so that TensorFlow's default is a candidate."""
        return any(name not in self.addresses for name in self.topology.names)

    @property
    def own_gpus(self) -> dict[str, str]:
        """TensorFlow's name of each GPU of this process by device name."""
        gpus = (device.name for device in self.topology.devices if device.kind == "gpu")
        return {name: self.tf_names[name] for name in gpus if name not in self.addresses}

    @property
    def name_of(self) -> dict[str, str]:
        """Each device's name by its name in TensorFlow."""
        return {tf_name: name for name, tf_name in self.tf_names.items()}

    def tf_name(self, device: int) -> str:
        """TensorFlow's name of topology device number `device`."""
        return self.tf_names[self.topology.names[device]]

    def machine_of(self, name: str) -> str:
        """The key under which times of single ops on a device are stored. A worker has its own cores or runs elsewhere,
        so its times differ from those of this process.
        """
        device = self.topology.devices[self.topology.index[name]]
        hardware = device.hardware if device.kind == "gpu" else ""
        if not hardware and name in self.addresses:
            cores = 0 if self.workers is None else len(self.workers.cores[self._task(name)])
            hardware = cores_of_cpu(cores) if cores else f"@{self.addresses[name].rpartition(':')[0]}"
        return timed_on(hardware or cpu_model())

    @property
    def session_cluster(self) -> dict[int, str]:
        """Task number -> address of each worker, for a session at `session_target`; empty if it already knows them."""
        left = self.addresses if self.standalone else {}
        return {self._task(name): address for name, address in left.items() if name in self.topology.index}

    @property
    def whole(self) -> Devices:
        """All devices: `original` if some are left out here, else these."""
        return self.original or self

    def lost(self, silent_s: float = 0.0) -> tuple[str, ...]:
        """The devices whose process does not answer right now; devices in this process always answer.

        silent_s: how long to ask a silent address again, in seconds, because a network may be down for a moment. If no
        address is silent, this does not wait. If an op failed and no device is lost, a worker was restarted from
        outside: call `join_all`.
        """
        deadline = time.monotonic() + silent_s
        while True:
            answers = {name: self._answer(name) for name in self.topology.names if name in self.addresses}
            if Answer.SILENT not in answers.values() or time.monotonic() >= deadline:
                return tuple(name for name, answer in answers.items() if answer is not Answer.LISTENS)
            time.sleep(POLL_S)

    def without(self, names: Collection[str]) -> Devices:
        """Connect to the devices without `names`; each keeps its name, its place in the order and its links.

        Raises PlacerError if no worker is left, or if one of the remaining workers does not answer.
        """
        self._check_known(names)
        left = [name for name in self.topology.names if name not in names]
        if not left or (self.addresses and self.addresses.keys().isdisjoint(left)):
            raise PlacerError(f"no device is left without {listed(names)}; train untouched until one is back.")
        self._join(left)
        target = next((f"grpc://{address}" for name, address in self.addresses.items() if name in left), "")
        return replace(
            self,
            topology=self.topology.narrowed(left),
            tf_names={name: self.tf_names[name] for name in left},
            session_target=target,
            original=self.whole,
        )

    def reconnect(self, names: Collection[str], clock: Callable[[], float] = time.monotonic) -> Reconnection:
        """Bring lost devices back in the background: workers that this process started are restarted, the addresses of
        others are tried every 2 s until they answer. Call `join_all` once no device is away. clock: returns seconds.
        """
        self._check_known(names)
        if local := [name for name in names if name not in self.addresses]:
            raise BadInputError(f"{listed(local)} is in this process and cannot be reconnected; name workers only.")
        return Reconnection({name: partial(self._bring_back, name) for name in names}, clock)

    def join_all(self) -> Devices:
        """Connect to all devices again, with the names, order and links they had.

        Raises PlacerError if a device does not answer.
        """
        self._join(self.whole.topology.names)
        return self.whole

    def join_anew(self) -> None:
        """Leave the workers and join the same ones again, so that they free what they kept of closed steps and return
        that memory to the kernel.

        This drops everything on workers, as `join_all` does. Raises DeviceLostError if a worker does not answer.
        """
        with suppress(PlacerError, *LOST_ERRORS), waiting("the devices were left"):  # joining shows what is lost
            leave_living()
        try:
            self._join(self.topology.names)
        except PlacerError as error:
            raise DeviceLostError(str(error)) from error

    def close(self) -> None:
        """End all workers started for this topology, including those left out and those being restarted."""
        try:
            if self.leaves:
                leave_if_there(self.addresses.values(), ends=self.workers is not None or self.ray_workers is not None)
        finally:
            for started in (self.workers, self.ray_workers):
                if started is not None:
                    started.close()

    def _answer(self, name: str) -> Answer:
        """Check both process and port, because a process that starts or dies may exist without listening."""
        if self.workers is not None and not self.workers.running(self._task(name)):
            return Answer.REFUSES
        return answer(self.addresses[name])

    def _bring_back(self, name: str) -> bool:
        if self.ray_workers is not None:
            return self.ray_workers.bring_back(self._task(name))
        if self.workers is None:
            return listens(self.addresses[name])
        self.workers.restart(self._task(name))
        time.sleep(RECONNECT_S)  # wait here, in the background, rather than while joining
        return True

    def _join(self, names: Collection[str]) -> None:
        tasks = {self._task(name): address for name, address in self.addresses.items() if name in names}
        for address in tasks.values():
            check_answers(address)
        if tasks:
            joined = join_workers(tasks, own=self.workers is not None)
            keep_joined_alive()
            with waiting("the workers reached one another", first=True):
                reach_one_another([name for name in joined.cpus if "/job:worker" in name], list(tasks.values()))
            if self.workers is not None:
                self.workers.fence()

    def _task(self, name: str) -> int:
        return list(dict.fromkeys(self.addresses.values())).index(self.addresses[name])

    def _check_known(self, names: Collection[str]) -> None:
        known = self.whole.topology.index
        if unknown := [name for name in names if name not in known]:
            raise BadInputError(f"{listed(unknown)} is no device here; the topology has {listed(list(known))}.")
