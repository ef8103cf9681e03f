"""The devices at hand: finds or starts them, measures the links between them, and names them as TensorFlow does."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass, replace
from functools import cached_property

import psutil
import tensorflow as tf

from placer import internals
from placer.errors import BadInputError, PlacerError
from placer.links import measure_links
from placer.topology import Device, Topology
from placer.worker import bind_to_loopback, listening_ports
from placer.workers import Workers, memory_bytes_each, start_workers

LOCAL_CPU = "cpu:0"
CONNECT_TIMEOUT_S = 5.0
ADDRESS = re.compile(r"^[\w.\-]+:\d{1,5}$")


@dataclass
class Devices:
    """A topology whose devices are there: each name with its TensorFlow device, and the session that reaches all.

    host: TensorFlow's name of the coordinating process's CPU. single_kind: whether all devices are of one kind.
    """

    topology: Topology
    tf_names: dict[str, str]
    host: str
    session_target: str = ""
    workers: Workers | None = None

    def __enter__(self) -> Devices:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def single_kind(self) -> bool:
        """Whether all devices are of one kind, so that the same op gives the same bits on each."""
        return len({device.kind for device in self.topology.devices}) == 1

    @property
    def has_local(self) -> bool:
        """Whether the coordinating process's own devices take part, so that TensorFlow's default is a candidate."""
        return any(name == self.host or "GPU" in name for name in self.tf_names.values())

    def tf_name(self, device: int) -> str:
        """TensorFlow's name of topology device number `device`."""
        return self.tf_names[self.topology.names[device]]

    def close(self) -> None:
        """End the workers that were started for this topology."""
        if self.workers is not None:
            self.workers.close()


def open_devices(spec: str | None = None, *, include_local: bool = False, links: bool = True) -> Devices:
    """The devices named by `spec`: None = this process's GPUs and CPU, "workers:N" = N local worker processes,
    "host:port,host:port" = workers that already serve.

    links: measure latency, bandwidth and the ends' own work between every pair. Raises BadInputError for a spec
    that names nothing, PlacerError where a device does not answer.
    """
    workers = None
    if spec is None:
        devices = _in_process()
    elif spec.startswith("workers:"):
        count = spec.removeprefix("workers:")
        if not count.isdigit():
            raise BadInputError(f"devices {spec!r}: {count!r} is no number of workers; write workers:2.")
        workers = start_workers(int(count))
        devices = _joined(workers.addresses, workers, include_local)
    elif all(ADDRESS.match(address) for address in spec.split(",")):
        for address in spec.split(","):
            _check_answers(address)
        devices = _joined(tuple(spec.split(",")), None, include_local)
    else:
        raise BadInputError(f"devices {spec!r} is unknown; write workers:N or host:port,host:port, or leave it out.")
    try:
        return replace_links(devices) if links and len(devices.topology) > 1 else devices
    except BaseException:
        devices.close()
        raise


def replace_links(devices: Devices) -> Devices:
    """The same devices with their links measured now."""
    names = [devices.tf_name(d) for d in range(len(devices.topology))]
    links = measure_links(devices.topology.names, names)
    return replace(devices, topology=replace(devices.topology, links=links))


def _in_process() -> Devices:
    """All GPUs of this process, then its CPU."""
    logical = tf.config.list_logical_devices("GPU")
    tf_names = {f"gpu:{i}": device.name for i, device in enumerate(logical)}
    found = [Device(name, "gpu", _gpu_bytes(i)) for i, name in enumerate(tf_names)]
    cpus = tf.config.list_logical_devices("CPU")
    for i, cpu in enumerate(cpus):
        tf_names[f"cpu:{i}"] = cpu.name
        found.append(Device(f"cpu:{i}", "cpu", int(psutil.virtual_memory().available) // len(cpus)))
    tf_names = {name: full_name(device) for name, device in tf_names.items()}
    return Devices(Topology(tuple(found)), tf_names, tf_names[LOCAL_CPU])


def _gpu_bytes(index: int) -> int | None:
    """What TensorFlow may still take of a logical GPU; None where it does not say."""
    limits = internals.device_memory_limits("GPU")
    return limits[index] if index < len(limits) else None


def _joined(addresses: tuple[str, ...], workers: Workers | None, include_local: bool) -> Devices:
    """Join the workers at `addresses` to this process; what this opens listens on loopback only, too."""
    before = listening_ports()
    cluster = tf.train.ClusterSpec({"worker": list(addresses)})
    try:
        tf.config.experimental_connect_to_cluster(cluster)
        logical = [device.name for device in tf.config.list_logical_devices("CPU")]
    except tf.errors.OpError as error:
        where = ", ".join(addresses)
        raise PlacerError(f"the workers at {where} do not answer: {error.message.splitlines()[0]}") from error
    if workers is not None:
        bind_to_loopback([port for port in listening_ports() if port not in before])
    share = memory_bytes_each(len(addresses))
    tf_names = {f"worker:{i}": full_name(f"/job:worker/task:{i}/device:CPU:0") for i in range(len(addresses))}
    found = [Device(name, "cpu", share) for name in tf_names]
    host = full_name(next(name for name in logical if "/job:worker" not in name))
    if include_local:
        found.append(Device(LOCAL_CPU, "cpu", share))
        tf_names[LOCAL_CPU] = host
    return Devices(Topology(tuple(found)), tf_names, host, f"grpc://{addresses[0]}", workers)


def _check_answers(address: str) -> None:
    """Refuse at once what TensorFlow would wait minutes for."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S):
            pass
    except (OSError, OverflowError) as error:
        raise PlacerError(
            f"no worker answers at {address} ({error}); start it, or leave it out of --devices."
        ) from error


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
