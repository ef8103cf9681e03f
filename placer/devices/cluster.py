"""Devices: finds or starts them, measures the links between them, and maps their names to TensorFlow's."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any
from weakref import WeakSet

import psutil
import tensorflow as tf

from placer import tf_internals
from placer.devices.host.cores import say_quota
from placer.devices.host.machine import machine_name
from placer.devices.joining import (
    Joined,
    check_hosts,
    fail_at_once,
    join_workers,
    keep_joined_alive,
    leave,
    own_node,
    part,
    reach_one_another,
)
from placer.devices.links.link_probes import measure_links, probes_within
from placer.devices.links.staging import stages_from
from placer.devices.logical import gpu_names, split
from placer.devices.ray.ray_workers import RayWorkers, start_ray_workers
from placer.devices.ray.spec import RaySpec, is_ray
from placer.devices.specs import check_max_memory, check_spec, division, worker_addresses
from placer.devices.workers.addresses import check_answers, listens
from placer.devices.workers.deadline import LOST_ERRORS, DeviceLostError, drop_deadlines, keep_deadlines, waiting
from placer.devices.workers.reconnect import Reconnection
from placer.devices.workers.worker_info import WorkerInfo
from placer.devices.workers.workers import Workers, memory_bytes_each, start_workers
from placer.errors import BadInputError, PlacerError, listed
from placer.graph.memory_limits import NO_LIMITS, MemoryLimits
from placer.graph.topology import Device, Topology

LOCAL_CPU = "cpu:0"
RECONNECT_S = 1.0  # a worker that could not reach another tries again after this long


@dataclass
class Devices:
    """An open topology: the TensorFlow device behind each name, and the session that reaches them all.

    Workers get lost and come back (docs/decisions/008-lost-devices.md). `without`, `join_all` and `join_anew` connect
    this process again: afterwards all variables and functions on workers are gone, even on survivors, and functions
    made before must never be called again. No other thread may use TensorFlow meanwhile.
    """

    topology: Topology
    tf_names: dict[str, str]  # TensorFlow's full name by device name
    host: str  # TensorFlow's name of the coordinating process's CPU
    session_target: str = ""
    workers: Workers | None = None  # worker processes started for this topology on this machine
    ray_workers: RayWorkers | None = None  # those that Ray started for it
    addresses: dict[str, str] = field(default_factory=dict)  # host:port of each worker by device name, in task order
    original: Devices | None = None  # all devices, where some are left out
    hardware: dict[str, str] = field(default_factory=dict)  # product name of each GPU by device name
    standalone: bool = False  # whether each worker, before it was joined, knew of no other
    stages_from: int | None = None  # bytes from which a batch goes to own GPUs through pinned memory; None = never
    leaves: bool = False  # whether closing takes this process out of the cluster
    runners: WeakSet[Any] = field(default_factory=WeakSet, repr=False, compare=False)  # that may keep steps on them
    _using: ExitStack = field(default_factory=ExitStack, repr=False, compare=False)

    def __enter__(self) -> Devices:
        if self.leaves:  # even the tracing of a local function waits for the workers, which are sent a copy
            self._using.enter_context(waiting("the devices were open", first=True, loose=True))
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self._using.__exit__(*error)
        finally:
            self.close()

    @cached_property
    def same_bits(self) -> bool:
        """Whether an op gives the same bits wherever and whenever it runs. Not even a single GPU promises it: sums are
        taken in any order, and libraries choose the algorithm that is fastest at the moment.
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

    def tf_name(self, device: int) -> str:
        """TensorFlow's name of topology device number `device`."""
        return self.tf_names[self.topology.names[device]]

    def machine_of(self, name: str) -> str:
        """The key under which times of single ops on a device are kept. A worker has cores of its own, or is elsewhere,
        so that its times are not those of this process.
        """
        hardware = self.hardware.get(name, "")
        if not hardware and name in self.addresses:
            cores = 0 if self.workers is None else len(self.workers.cores[self._task(name)])
            elsewhere = f"@{self.addresses[name].rpartition(':')[0]}"
            hardware = f"{cores} core{'s' * (cores > 1)}" if cores else elsewhere
        return machine_name(hardware)

    @property
    def session_cluster(self) -> dict[int, str]:
        """The workers by task number, to be told to a session at `session_target`; empty where it knows them."""
        left = self.addresses if self.standalone else {}
        return {self._task(name): address for name, address in left.items() if name in self.topology.index}

    @property
    def whole(self) -> Devices:
        """All devices: the original where some are left out, else these."""
        return self.original or self

    def lost(self) -> tuple[str, ...]:
        """The devices whose process does not answer right now; devices in this process always answer.

        Where an op failed and none is lost, a worker was restarted from outside: call `join_all`.
        """
        return tuple(name for name in self.topology.names if name in self.addresses and not self._answers(name))

    def without(self, names: Collection[str]) -> Devices:
        """Connect to the devices without `names`; each keeps its name, its place in the order and its links.

        Raises PlacerError where no worker is left, or one of those left does not answer.
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
        others are tried every 2 s until they answer. Call `join_all` once it is done. clock: seconds.
        """
        self._check_known(names)
        if local := [name for name in names if name not in self.addresses]:
            raise BadInputError(f"{listed(local)} is in this process and cannot be reconnected; name workers only.")
        return Reconnection({name: partial(self._bring_back, name) for name in names}, clock)

    def join_all(self) -> Devices:
        """Connect to all devices again, with the names, order and links they had.

        Raises PlacerError where one does not answer.
        """
        self._join(self.whole.topology.names)
        return self.whole

    def join_anew(self) -> None:
        """Leave the workers and join the same ones again: they free what they kept of steps that were closed, and give
        it back to the kernel.

        Afterwards, what was on workers is gone, as after `join_all`. Raises DeviceLostError where one does not answer.
        """
        with suppress(PlacerError, *LOST_ERRORS), waiting("the devices were left"):  # what is lost shows when joined
            part()
        try:
            self._join(self.topology.names)
        except PlacerError as error:
            raise DeviceLostError(str(error)) from error

    def close(self) -> None:
        """End all workers started for this topology, including those left out and those being restarted."""
        try:
            if self.leaves:
                leave(self.addresses.values(), ends=self.workers is not None or self.ray_workers is not None)
        finally:
            for started in (self.workers, self.ray_workers):
                if started is not None:
                    started.close()

    def _answers(self, name: str) -> bool:
        """Check process and port: a process may exist and not listen yet, or not any more while it dies."""
        there = self.workers is None or self.workers.running(self._task(name))
        return there and listens(self.addresses[name])

    def _bring_back(self, name: str) -> bool:
        if self.ray_workers is not None:
            return self.ray_workers.bring_back(self._task(name))
        if self.workers is None:
            return listens(self.addresses[name])
        self.workers.restart(self._task(name))
        time.sleep(RECONNECT_S)  # in the background, not when they are joined
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


def open_devices(
    spec: str | None = None,
    *,
    include_local: bool = False,
    links: bool = True,
    resilient: bool = False,
    deadlines: bool = False,
    workers: Workers | RayWorkers | None = None,
    max_memory: MemoryLimits = NO_LIMITS,
) -> Devices:
    """Open the devices named by `spec`: None = this process's GPUs and CPU, "gpus:N" = the same with every GPU split
    into N logical ones of equal memory, "gpus:N@MIB" = of MIB mebibytes each, "cpus:N" = this process's CPU as N
    devices, "workers:N" = N local worker processes, "host:port,host:port" = workers that already serve,
    "topology.json" = those whose addresses are in the file, "ray:N" or "ray:N@ADDRESS" = a worker on each of N whole
    nodes of a Ray cluster (placer.devices.ray.connection says where it is found without an address).

    GPUs and CPU can be divided only before TensorFlow initialises them: call `split` before models are made.

    links: measure latency, bandwidth and the ends' own work between every pair; how a batch gets to a GPU soonest is
    measured in any case. resilient: ops on a lost worker fail at once instead of waiting forever; applies to the whole
    process, and only before it first joins workers. deadlines: the same, remote calls have deadlines until the devices
    are closed (placer.devices.workers.deadline), and closing them leaves the cluster. workers: those of "workers:N" or
    "ray:N", if already started. max_memory: of devices, see `MemoryLimits.on`. Raises BadInputError for an unknown spec
    or device, PlacerError where a device does not answer.
    """
    check_max_memory(max_memory, spec, include_local)
    say_quota()
    if resilient or deadlines:
        fail_at_once()
    devices = _found(spec, workers, include_local, deadlines, max_memory)
    try:
        devices.topology = max_memory.on(devices.topology, shares=True)
        devices = replace_links(devices) if links and len(devices.topology) > 1 else devices
        devices.stages_from = stages_from(devices.host, [*devices.own_gpus.values()])
        if devices.workers is not None:
            devices.workers.fence()
        return devices
    except BaseException:
        devices.close()
        raise


def start_own(spec: str | None, max_memory: MemoryLimits = NO_LIMITS) -> Workers | RayWorkers | None:
    """Start the workers that `spec` has this process start; None for other devices. Raises as `open_devices`."""
    check_spec(spec)
    if spec is not None and is_ray(spec):
        return start_ray_workers(RaySpec.parsed(spec))
    if spec is not None and spec.startswith("workers:"):
        count, limits = int(spec.removeprefix("workers:")), dict(max_memory.by_device)
        return start_workers(count, limits={t: limits[f"worker:{t}"] for t in range(count) if f"worker:{t}" in limits})
    return None


def replace_links(devices: Devices) -> Devices:
    """The same devices with their links measured now."""
    names = [devices.tf_name(d) for d in range(len(devices.topology))]
    limits = [device.memory_bytes for device in devices.topology.devices if device.memory_bytes is not None]
    probes = probes_within(min(limits, default=None))
    links = measure_links(devices.topology.names, names, probes=probes, nodes=devices.topology.nodes)
    return replace(devices, topology=replace(devices.topology, links=links))


def _found(
    spec: str | None,
    workers: Workers | RayWorkers | None,
    include_local: bool,
    deadlines: bool,
    max_memory: MemoryLimits,
) -> Devices:
    check_spec(spec)
    split(spec)
    divided = None if spec is None else division(spec)
    if spec is None or divided is not None:
        return _in_process(gpus=divided is None or divided.kind == "GPU")
    workers = workers or start_own(spec, max_memory)
    return _joined(workers.addresses if workers else worker_addresses(spec), workers, include_local, deadlines)


def _in_process(*, gpus: bool) -> Devices:
    """This process's GPUs (if `gpus`), then its CPU. A GPU copies one tensor at a time in each direction."""
    cards = tf.config.list_logical_devices("GPU") if gpus else []
    names = {f"gpu:{i}": full_name(card.name) for i, card in enumerate(cards)}
    limits = tf_internals.device_memory_limits()
    found = [Device(name, "gpu", limits.get(tf_name)) for name, tf_name in names.items()]
    hardware = {name: called for name, called in zip(names, gpu_names(), strict=False) if called}
    cpus = tf.config.list_logical_devices("CPU")
    names |= {f"cpu:{i}": full_name(cpu.name) for i, cpu in enumerate(cpus)}
    share = int(psutil.virtual_memory().available) // len(cpus)
    found += [Device(f"cpu:{i}", "cpu", share) for i in range(len(cpus))]
    topology = Topology(tuple(found), contention="link" if cards else "none")
    return Devices(topology, names, names[LOCAL_CPU], hardware=hardware)


def _joined(
    addresses: tuple[str, ...], started: Workers | RayWorkers | None, include_local: bool, deadlines: bool
) -> Devices:
    """Join the workers at `addresses`; those that were started are ended where that fails. deadlines: as for
    `open_devices`.
    """
    workers = started if isinstance(started, Workers) else None
    try:
        if workers is None:
            check_hosts(addresses)
            for address in addresses:
                check_answers(address)
        if deadlines:
            _keep_deadlines(addresses, workers)
        joined = join_workers(dict(enumerate(addresses)), own=workers is not None)
        keep_joined_alive()
    except BaseException:
        drop_deadlines()
        if started is not None:
            started.close()
        raise
    found, tf_names, by_name = _devices_of(joined, addresses, workers is not None)
    host = full_name(next(name for name in joined.cpus if "/job:worker" not in name))
    if include_local:
        node = None if workers is not None else own_node(addresses)
        found.append(Device(LOCAL_CPU, "cpu", memory_bytes_each(len(addresses)), node=node))
        tf_names[LOCAL_CPU] = host
    topology = Topology(tuple(found), contention="link" if joined.gpus else "none")
    target, alone = f"grpc://{addresses[0]}", bool(joined.infos)
    ray_workers = started if isinstance(started, RayWorkers) else None
    return Devices(topology, tf_names, host, target, workers, ray_workers, by_name, leaves=deadlines, standalone=alone)


def _devices_of(
    joined: Joined, addresses: Sequence[str], own: bool
) -> tuple[list[Device], dict[str, str], dict[str, str]]:
    """Each worker's CPU and GPUs; TensorFlow's name, and the address, by device name."""
    found: list[Device] = []
    tf_names: dict[str, str] = {}
    by_name: dict[str, str] = {}
    limits = tf_internals.device_memory_limits()
    for task, address in enumerate(addresses):
        gpus = [full_name(name) for name in joined.gpus if f"/task:{task}/" in full_name(name)]
        names = {f"worker:{task}/gpu:{i}": tf_name for i, tf_name in enumerate(gpus)}
        node = None if own else address.rpartition(":")[0]
        found += [
            Device(name, "gpu", limits.get(tf_name), address=address, node=node) for name, tf_name in names.items()
        ]
        names[f"worker:{task}"] = full_name(f"/job:worker/task:{task}/device:CPU:0")
        share = _share_bytes(joined.infos.get(task), address, addresses)
        found.append(Device(f"worker:{task}", "cpu", share, address=None if own else address, node=node))
        tf_names |= names
        by_name |= dict.fromkeys(names, address)
    return found, tf_names, by_name


def _share_bytes(info: WorkerInfo | None, address: str, addresses: Sequence[str]) -> int:
    """Its share of its machine's memory, by what it says; where it says nothing, as if it were on this machine."""
    if info is None:
        return memory_bytes_each(len(addresses))
    host = address.rpartition(":")[0]
    return info.memory_bytes // sum(other.rpartition(":")[0] == host for other in addresses)


def _keep_deadlines(addresses: Sequence[str], workers: Workers | None) -> None:
    names = {f"worker:{task}": address for task, address in enumerate(addresses)}

    def lost() -> list[str]:
        ended = {name for task, name in enumerate(names) if workers is not None and not workers.running(task)}
        return [name for name, address in names.items() if name in ended or not listens(address)]

    keep_deadlines(list(names), workers, lost)


def full_name(name: str) -> str:
    """TensorFlow's device name with every part spelled out, as it stands in partitioned graphs."""
    spec = tf.DeviceSpec.from_string(name)
    return tf.DeviceSpec(  # type: ignore[no-any-return]
        job=spec.job or "localhost",
        replica=spec.replica or 0,
        task=spec.task or 0,
        device_type=spec.device_type,
        device_index=spec.device_index or 0,
    ).to_string()
