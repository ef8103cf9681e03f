"""Devices: finds or starts them, measures the links between them, and maps their names to TensorFlow's."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import permutations
from typing import Any

import psutil
import tensorflow as tf

from placer import tf_internals
from placer.devices.link_probes import measure_links
from placer.devices.logical import division, gpu_names
from placer.devices.logical import split as split
from placer.devices.workers.addresses import check_answers, listens
from placer.devices.workers.deadline import drop_deadlines, keep_deadlines, waiting
from placer.devices.workers.reconnect import Reconnection
from placer.devices.workers.worker import bind_to_loopback, listening_ports
from placer.devices.workers.workers import FAIL_FAST, Workers, memory_bytes_each, share_cores, start_workers
from placer.errors import BadInputError, PlacerError, listed
from placer.graph.topology import ANY, Device, Topology

LOCAL_CPU = "cpu:0"
JOIN_TIMEOUT_S = 30.0
RETRY_S = 0.25
RECONNECT_S = 1.0  # a worker that could not reach another tries again after this long
STREAMING = "TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"
RESILIENT = {STREAMING: "false", FAIL_FAST: "true"}
ADDRESS = re.compile(r"^[\w.\-]+:\d{1,5}$")
SPECS = "gpus:N, gpus:N@MIB, cpus:N, workers:N or host:port,host:port"


@dataclass
class Devices:
    """An open topology: the TensorFlow device behind each name, and the session that reaches them all.

    Workers get lost and come back (docs/decisions/008-lost-devices.md). `without` and `join_all` connect this process
    again: afterwards all variables and functions on workers are gone, even on survivors, and functions made before
    must never be called again. No other thread may use TensorFlow meanwhile.
    """

    topology: Topology
    tf_names: dict[str, str]  # TensorFlow's full name by device name
    host: str  # TensorFlow's name of the coordinating process's CPU
    session_target: str = ""
    workers: Workers | None = None  # worker processes started for this topology
    addresses: dict[str, str] = field(default_factory=dict)  # host:port of each worker by device name, in task order
    original: Devices | None = None  # all devices, where some are left out
    hardware: dict[str, str] = field(default_factory=dict)  # product name of each GPU by device name
    leaves: bool = False  # whether closing takes this process out of the cluster
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

    def tf_name(self, device: int) -> str:
        """TensorFlow's name of topology device number `device`."""
        return self.tf_names[self.topology.names[device]]

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
            topology=_narrowed(self.topology, left),
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

    def close(self) -> None:
        """End all workers started for this topology, including those left out and those being restarted."""
        try:
            if self.leaves:
                _leave(self.addresses.values())
        finally:
            if self.workers is not None:
                self.workers.close()

    def _answers(self, name: str) -> bool:
        """Check process and port: a process may exist and not listen yet, or not any more while it dies."""
        there = self.workers is None or self.workers.running(self._task(name))
        return there and listens(self.addresses[name])

    def _bring_back(self, name: str) -> bool:
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
            joined = _join_workers(tasks, own=self.workers is not None)
            with waiting("the workers reached one another", first=True):
                _reach_one_another([name for name in joined if "/job:worker" in name], list(tasks.values()))

    def _task(self, name: str) -> int:
        return list(self.addresses).index(name)

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
    workers: Workers | None = None,
) -> Devices:
    """Open the devices named by `spec`: None = this process's GPUs and CPU, "gpus:N" = the same with every GPU split
    into N logical ones of equal memory, "gpus:N@MIB" = of MIB mebibytes each, "cpus:N" = this process's CPU as N
    devices, "workers:N" = N local worker processes, "host:port,host:port" = workers that already serve.

    GPUs and CPU can be divided only before TensorFlow initialises them: call `split` before models are made.

    links: measure latency, bandwidth and the ends' own work between every pair. resilient: ops on a lost worker fail
    at once instead of waiting forever; applies to the whole process, and only before it first joins workers.
    deadlines: the same, remote calls have deadlines until the devices are closed (placer.devices.workers.deadline), and
    closing them leaves the cluster. workers: the processes of "workers:N", if already started. Raises BadInputError for
    an unknown spec, PlacerError where a device does not answer.
    """
    if resilient or deadlines:
        _fail_at_once()
    devices = _found(spec, workers, include_local, deadlines)
    try:
        return replace_links(devices) if links and len(devices.topology) > 1 else devices
    except BaseException:
        devices.close()
        raise


def check_spec(spec: str | None) -> None:
    """Raises BadInputError for a spec that is unknown or asks for more workers than cores."""
    if spec is None or division(spec) is not None:
        return
    if spec.startswith("workers:"):
        count = spec.removeprefix("workers:")
        if not count.isdecimal():
            raise BadInputError(f"devices {spec!r}: {count!r} is no number of workers; write workers:2.")
        share_cores(int(count), sorted(os.sched_getaffinity(0)))
    elif not all(map(ADDRESS.match, spec.split(","))):
        raise BadInputError(f"devices {spec!r} is unknown; write {SPECS}, or leave it out.")


def replace_links(devices: Devices) -> Devices:
    """The same devices with their links measured now."""
    names = [devices.tf_name(d) for d in range(len(devices.topology))]
    links = measure_links(devices.topology.names, names)
    return replace(devices, topology=replace(devices.topology, links=links))


def _found(spec: str | None, workers: Workers | None, include_local: bool, deadlines: bool) -> Devices:
    check_spec(spec)
    split(spec)
    divided = None if spec is None else division(spec)
    if spec is None or divided is not None:
        return _in_process(gpus=divided is None or divided.kind == "GPU")
    if spec.startswith("workers:"):
        workers = workers or start_workers(int(spec.removeprefix("workers:")))
        return _joined(workers.addresses, workers, include_local, deadlines)
    addresses = tuple(spec.split(","))
    for address in addresses:
        check_answers(address)
    return _joined(addresses, None, include_local, deadlines)


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


def _joined(addresses: tuple[str, ...], workers: Workers | None, include_local: bool, deadlines: bool) -> Devices:
    """Join the workers at `addresses`; with own workers, ports that this process opens listen on loopback only.

    deadlines: as for `open_devices`. Own workers are ended where joining them fails.
    """
    try:
        if deadlines:
            _keep_deadlines(addresses, workers)
        logical = _join_workers(dict(enumerate(addresses)), own=workers is not None)
    except BaseException:
        drop_deadlines()
        if workers is not None:
            workers.close()
        raise
    share = memory_bytes_each(len(addresses))
    tf_names = {f"worker:{i}": full_name(f"/job:worker/task:{i}/device:CPU:0") for i in range(len(addresses))}
    by_name = dict(zip(tf_names, addresses, strict=True))
    found = [Device(name, "cpu", share) for name in tf_names]
    host = full_name(next(name for name in logical if "/job:worker" not in name))
    if include_local:
        found.append(Device(LOCAL_CPU, "cpu", share))
        tf_names[LOCAL_CPU] = host
    target = f"grpc://{addresses[0]}"
    return Devices(Topology(tuple(found)), tf_names, host, target, workers, by_name, leaves=deadlines)


def _keep_deadlines(addresses: Sequence[str], workers: Workers | None) -> None:
    names = {f"worker:{task}": address for task, address in enumerate(addresses)}

    def lost() -> list[str]:
        ended = {name for task, name in enumerate(names) if workers is not None and not workers.running(task)}
        return [name for name, address in names.items() if name in ended or not listens(address)]

    keep_deadlines(list(names), workers, lost)


def _leave(addresses: Iterable[str]) -> None:
    """Leave the cluster while its workers are there: later, TensorFlow complains that it cannot tell them."""
    try:
        if all(map(listens, addresses)):
            with waiting("the devices were left"):
                tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec({}))
    except PlacerError:  # a worker was lost now that nothing is left to do
        pass
    finally:
        drop_deadlines()


def _join_workers(tasks: Mapping[int, str], own: bool) -> list[str]:
    """Join exactly these workers (task number -> address) to this process; returns TensorFlow's names of all CPUs.

    own: ports that this process opens listen on loopback only.
    """
    before = listening_ports()
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    try:
        while True:
            try:
                with waiting("the devices were joined"):
                    return _joined_once(tasks)
            except tf.errors.UnavailableError:  # TensorFlow retries a restarted process about once a second
                if time.monotonic() > deadline or not all(map(listens, tasks.values())):
                    raise
            time.sleep(RETRY_S)
    except tf.errors.OpError as error:
        where = ", ".join(tasks.values())
        raise PlacerError(f"the workers at {where} do not answer: {error.message.splitlines()[0]}") from error
    finally:
        if own:
            bind_to_loopback([port for port in listening_ports() if port not in before])


def _joined_once(tasks: Mapping[int, str]) -> list[str]:
    # Joining the same cluster twice in a row breaks it (the workers get a port that is closed), so join a cluster in
    # which the first worker has another number in between.
    clusters = [dict(tasks)]
    if tf_internals.joined_tasks() == clusters[0]:
        clusters.insert(0, {max(tasks) + 1: tasks[min(tasks)]})
    for cluster in clusters:
        tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec({"worker": cluster}))
    return [device.name for device in tf.config.list_logical_devices("CPU")]


def _reach_one_another(names: Sequence[str], addresses: Sequence[str]) -> None:
    """Wait until a tensor gets from each worker to each other. A worker that met a dead one tries it again only about a
    second later, and transfers until then fail although no worker is lost. Raises PlacerError after JOIN_TIMEOUT_S.
    """
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    for src, dst in permutations(names, 2):
        while True:
            try:
                with tf.device(src):
                    tensor = tf.random.uniform([])  # not a constant, which would be made where it is used
                with tf.device(dst):
                    tf.identity(tensor).numpy()
                break
            except tf.errors.OpError as error:
                if time.monotonic() > deadline or not all(map(listens, addresses)):
                    raise PlacerError(f"{src} does not reach {dst}: {error.message.splitlines()[0]}") from error
            time.sleep(RETRY_S)


def _fail_at_once() -> None:
    """Turn off streaming of ops, which never notices a lost worker, and gRPC's waiting for one to come back."""
    if tf_internals.joined_tasks() and os.environ.get(STREAMING) != "false":
        warnings.warn(
            "workers were joined earlier in this process, so a lost worker will not be noticed: "
            f"call open_devices(resilient=True) first, or set {STREAMING}=false.",
            stacklevel=3,
        )
    else:
        os.environ.update(RESILIENT)


def _narrowed(topology: Topology, names: Collection[str]) -> Topology:
    """The topology of only the devices `names` and the links among them."""
    ends = {*names, ANY}
    return replace(
        topology,
        devices=tuple(device for device in topology.devices if device.name in names),
        links=tuple(link for link in topology.links if {link.src, link.dst} <= ends),
    )


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
