"""Opening devices: finds or starts them, joins them, and measures the links between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from placer import tf_internals
from placer.devices.cluster import Devices
from placer.devices.host.cores import say_quota, usable_cores
from placer.devices.host.machine import cores_of_cpu
from placer.devices.host.memory import available_bytes
from placer.devices.joining import Joined, check_hosts, fail_at_once, join_workers, keep_joined_alive, own_node
from placer.devices.links.link_probes import measure_links, probes_within
from placer.devices.links.staging import stages_from
from placer.devices.logical import gpu_names, split
from placer.devices.ray.ray_workers import RayWorkers, start_ray_workers
from placer.devices.ray.spec import RaySpec, is_ray
from placer.devices.specs import check_max_memory, check_spec, logical_devices, worker_addresses
from placer.devices.workers.addresses import check_answers, listens
from placer.devices.workers.deadline import drop_deadlines, keep_deadlines
from placer.devices.workers.worker_info import WorkerInfo
from placer.devices.workers.workers import Workers, memory_bytes_each, start_workers
from placer.graph.memory_limits import NO_LIMITS, MemoryLimits
from placer.graph.topology import Device, Topology

LOCAL_CPU = "cpu:0"


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
    into N logical GPUs of equal memory, "gpus:N@MIB" = logical GPUs of MIB mebibytes each, "cpus:N" = this process's
    CPU as N devices, "workers:N" = N local worker processes, "host:port,host:port" = workers that already serve,
    "topology.json" = the workers whose addresses are in the file, "ray:N" or "ray:N@ADDRESS" = a worker on each of N
    whole nodes of a Ray cluster (placer.devices.ray.connection says where the cluster is found without an address).

    GPUs and CPU can be divided only before TensorFlow initialises them: call `split` before models are made.

    links: measure latency, bandwidth and the work of both ends for every pair; the fastest way to send a batch to a GPU
    is measured in any case. resilient: make ops on a lost worker fail at once instead of waiting forever; applies to
    the whole process, and only before it first joins workers. deadlines: like `resilient`; in addition, remote calls
    have deadlines until the devices are closed (placer.devices.workers.deadline), and closing them leaves the cluster.
    workers: the workers of "workers:N" or "ray:N", if already started. max_memory: limits of devices, see
    `MemoryLimits.on`. Raises BadInputError for an unknown spec or device, PlacerError if a device does not answer.
    """
    check_max_memory(max_memory, spec, include_local)
    say_quota()
    if resilient or deadlines:
        fail_at_once()
    devices = _opened(spec, workers, include_local, deadlines, max_memory)
    try:
        devices.topology = max_memory.on(devices.topology, shares=True)
        devices = with_measured_links(devices) if links and len(devices.topology) > 1 else devices
        devices.stages_from = stages_from(devices.host, [*devices.own_gpus.values()])
        if devices.workers is not None:
            devices.workers.fence()
        return devices
    except BaseException:
        devices.close()
        raise


def start_own(spec: str | None, max_memory: MemoryLimits = NO_LIMITS) -> Workers | RayWorkers | None:
    """Start the workers if `spec` asks this process for some; None for other devices. Raises like `open_devices`."""
    check_spec(spec)
    if spec is not None and is_ray(spec):
        return start_ray_workers(RaySpec.parsed(spec))
    if spec is not None and spec.startswith("workers:"):
        count, limits = int(spec.removeprefix("workers:")), dict(max_memory.by_device)
        return start_workers(count, limits={t: limits[f"worker:{t}"] for t in range(count) if f"worker:{t}" in limits})
    return None


def with_measured_links(devices: Devices) -> Devices:
    """Measure the links, which takes seconds, and return the same devices with them."""
    names = [devices.tf_name(d) for d in range(len(devices.topology))]
    probes = probes_within(devices.topology.least_memory_bytes)
    links = measure_links(devices.topology.names, names, probes=probes, nodes=devices.topology.nodes)
    return replace(devices, topology=replace(devices.topology, links=links))


def _opened(
    spec: str | None,
    workers: Workers | RayWorkers | None,
    include_local: bool,
    deadlines: bool,
    max_memory: MemoryLimits,
) -> Devices:
    check_spec(spec)
    split(spec)
    divided = None if spec is None else logical_devices(spec)
    if spec is None or divided is not None:
        return _in_process(gpus=divided is None or divided.kind == "GPU")
    workers = workers or start_own(spec, max_memory)
    return _joined(workers.addresses if workers else worker_addresses(spec), workers, include_local, deadlines)


def _in_process(*, gpus: bool) -> Devices:
    """This process's GPUs (if `gpus`), then its CPU. A GPU copies one tensor at a time in each direction."""
    cards = _of_this_process("GPU") if gpus else []
    names = {f"gpu:{i}": full_name(card.name) for i, card in enumerate(cards)}
    limits = tf_internals.devices.device_memory_limits()
    products = dict(zip(names, gpu_names(), strict=False))
    found = [
        Device(name, "gpu", limits.get(tf_name), hardware=products.get(name, "")) for name, tf_name in names.items()
    ]
    cpus = _of_this_process("CPU")
    names |= {f"cpu:{i}": full_name(cpu.name) for i, cpu in enumerate(cpus)}
    share = available_bytes() // len(cpus)
    found += [Device(f"cpu:{i}", "cpu", share, hardware=_own_cores()) for i in range(len(cpus))]
    topology = Topology(tuple(found), contention="link" if cards else "none")
    return Devices(topology, names, names[LOCAL_CPU])


def _of_this_process(kind: str) -> list[Any]:
    """This process's logical devices; TensorFlow also lists the devices of joined workers."""
    found = list(tf.config.list_logical_devices(kind))
    if not tf_internals.devices.joined_tasks():  # in a worker process, its own devices are named /job:worker
        return found
    return [device for device in found if "/job:worker" not in device.name]


def _joined(
    addresses: tuple[str, ...], started: Workers | RayWorkers | None, include_local: bool, deadlines: bool
) -> Devices:
    """Join the workers at `addresses`. If this fails, end those in `started`. deadlines: as for `open_devices`."""
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
    found, tf_names, by_name = _devices_of(joined, addresses, workers)
    host = full_name(next(name for name in joined.cpus if "/job:worker" not in name))
    if include_local:
        node = None if workers is not None else own_node(addresses)
        found.append(Device(LOCAL_CPU, "cpu", memory_bytes_each(len(addresses)), node=node, hardware=_own_cores()))
        tf_names[LOCAL_CPU] = host
    topology = Topology(tuple(found), contention="link" if joined.gpus else "none")
    target, alone = f"grpc://{addresses[0]}", bool(joined.infos)
    ray_workers = started if isinstance(started, RayWorkers) else None
    return Devices(topology, tf_names, host, target, workers, ray_workers, by_name, leaves=deadlines, standalone=alone)


def _devices_of(
    joined: Joined, addresses: Sequence[str], workers: Workers | None
) -> tuple[list[Device], dict[str, str], dict[str, str]]:
    """Return each worker's GPUs and CPU; TensorFlow's name by device name; and the address by device name. workers: the
    workers that this process started, if any.
    """
    found: list[Device] = []
    tf_names: dict[str, str] = {}
    by_name: dict[str, str] = {}
    limits = tf_internals.devices.device_memory_limits()
    for task, address in enumerate(addresses):
        gpus = [full_name(name) for name in joined.gpus if f"/task:{task}/" in full_name(name)]
        names = {f"worker:{task}/gpu:{i}": tf_name for i, tf_name in enumerate(gpus)}
        node = None if workers is not None else address.rpartition(":")[0]
        found += [
            Device(name, "gpu", limits.get(tf_name), address=address, node=node) for name, tf_name in names.items()
        ]
        names[f"worker:{task}"] = full_name(f"/job:worker/task:{task}/device:CPU:0")
        info = joined.infos.get(task)
        share = _share_bytes(info, address, addresses)
        if workers is not None:
            found.append(Device(f"worker:{task}", "cpu", share, hardware=cores_of_cpu(len(workers.cores[task]))))
        else:
            hardware = "" if info is None else info.hardware
            found.append(Device(f"worker:{task}", "cpu", share, address=address, node=node, hardware=hardware))
        tf_names |= names
        by_name |= dict.fromkeys(names, address)
    return found, tf_names, by_name


def _own_cores() -> str:
    return cores_of_cpu(len(usable_cores()))


def _share_bytes(info: WorkerInfo | None, address: str, addresses: Sequence[str]) -> int:
    """A worker's share of its machine's memory, from its `info`; without one, as if it were on this machine."""
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
    """TensorFlow's device name with every part spelled out, as in partitioned graphs."""
    spec = tf.DeviceSpec.from_string(name)
    return tf.DeviceSpec(  # type: ignore[no-any-return]
        job=spec.job or "localhost",
        replica=spec.replica or 0,
        task=spec.task or 0,
        device_type=spec.device_type,
        device_index=spec.device_index or 0,
    ).to_string()
