"""Devices as a user names them (--devices, a campaign's `devices`), checked without TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from placer.devices.host.cores import usable_cores
from placer.devices.ray.spec import RaySpec, is_ray
from placer.devices.workers.workers import share_cores
from placer.errors import BadInputError, first_twice, short
from placer.graph.graph_files import read_topology
from placer.graph.memory_limits import MemoryLimits

SPECS = "gpus:N, gpus:N@MIB, cpus:N, workers:N, host:port,host:port, ray:N, ray:N@HOST:PORT or a topology file (.json)"
MOST = 64  # logical devices per physical one
NUMBER = re.compile(r"[0-9]{1,9}")
KINDS = ("workers", "gpus", "cpus", "ray")
LIKE = 0.76  # similarity from which a host is taken for a misspelt kind of devices
MOST_PORT = 65_535
ADDRESS = re.compile(r"^[\w.\-]+:\d{1,5}$")


def check_spec(spec: str | None) -> None:
    """Raises BadInputError for a spec that is unknown or asks for more workers than cores."""
    if spec is None or logical_devices(spec) is not None:
        return
    if spec.startswith("workers:"):
        count = spec.removeprefix("workers:")
        if not NUMBER.fullmatch(count):
            raise BadInputError(f"devices {short(spec)}: {short(count)} is no number of workers; write workers:2.")
        share_cores(int(count), usable_cores())
    elif is_ray(spec):
        RaySpec.parsed(spec)
    else:
        worker_addresses(spec)


@dataclass(frozen=True)
class LogicalDevices:
    """The request to divide every physical device of a kind into `count` logical devices."""

    spec: str  # as the user wrote it
    kind: str  # TensorFlow's name: "GPU" or "CPU"
    count: int
    mib: int | None = None  # mebibytes of each; None = an equal share of what is free

    def is_made(self, parts: Sequence[Any] | None) -> bool:
        """Whether a physical device already has this configuration. parts: its current configuration, or None."""
        if parts is None:
            return self.count == 1 and self.mib is None
        limits = {part.memory_limit for part in parts}
        return len(parts) == self.count and len(limits) == 1 and self.mib in (None, *limits)


def logical_devices(spec: str) -> LogicalDevices | None:
    """Parse "gpus:N", "gpus:N@MIB" or "cpus:N"; None for any other spec. Raises BadInputError for invalid numbers."""
    kind, colon, rest = spec.partition(":")
    if kind not in ("gpus", "cpus") or not colon:
        return None
    count, at, mib = rest.partition("@")
    if not NUMBER.fullmatch(count) or not 1 <= int(count) <= MOST:
        raise BadInputError(f"devices {short(spec)}: give how many logical ones, 1 to {MOST}, as in {kind}:2.")
    if at and kind == "cpus":
        raise BadInputError(f"devices {short(spec)}: a CPU's memory is not divided; write cpus:{int(count)}.")
    if at and (not NUMBER.fullmatch(mib) or int(mib) < 1):
        raise BadInputError(f"devices {short(spec)}: give whole mebibytes of each, as in gpus:{int(count)}@4096.")
    return LogicalDevices(spec, "GPU" if kind == "gpus" else "CPU", int(count), int(mib) if at else None)


def known_names(spec: str | None, include_local: bool) -> tuple[str, ...] | None:
    """The names of the devices that `spec` will open; None if they are not known beforehand, because they depend on the
    GPUs of this machine or of the workers. Raises like `check_spec`.
    """
    check_spec(spec)
    if spec is None:
        return None
    divided = logical_devices(spec)
    if divided is not None:
        return None if divided.kind == "GPU" else tuple(f"cpu:{i}" for i in range(divided.count))
    if not spec.startswith("workers:"):
        return None
    workers = tuple(f"worker:{task}" for task in range(int(spec.removeprefix("workers:"))))
    return (*workers, "cpu:0") if include_local else workers


def check_max_memory(max_memory: MemoryLimits, spec: str | None, include_local: bool) -> None:
    """Raises BadInputError for a limit of a device that `spec` will not open, if that is known beforehand."""
    names = known_names(spec, include_local)
    if names is not None:
        max_memory.check(names)


def worker_addresses(spec: str) -> tuple[str, ...]:
    """The addresses that `spec` lists, or those of a topology file's devices, in order; each worker counts once even if
    it has several devices. Raises BadInputError if the list or the file is invalid.
    """
    if not spec.endswith(".json"):
        if not all(map(ADDRESS.match, spec.split(","))):
            raise BadInputError(f"devices {spec!r} is unknown; write {SPECS}, or leave it out.")
        addresses = tuple(spec.split(","))
        if (twice := first_twice(addresses)) is not None:
            raise BadInputError(f"devices {short(spec)} names {short(twice)} twice; leave one of them out.")
        for address in addresses:
            _check_address(address, is_alone=len(addresses) == 1)
        return addresses
    for device in (devices := read_topology(spec).devices):
        if device.address is None:
            raise BadInputError(f"{spec}: device {short(device.name)} has no address; add host:port, or leave it out.")
        if not ADDRESS.match(device.address):
            raise BadInputError(f"{spec}: device {short(device.name)}: {short(device.address)} is no host:port.")
        _check_address(device.address, is_alone=False)
    return tuple(dict.fromkeys(device.address for device in devices if device.address is not None))


def _check_address(address: str, *, is_alone: bool = True) -> None:
    """Raises BadInputError for a port that cannot exist, and for a misspelt kind of devices ("worker:2")."""
    host, _, port = address.rpartition(":")
    if int(port) > MOST_PORT:
        raise BadInputError(f"devices {short(address)}: ports end at {MOST_PORT}; correct it.")
    near = get_close_matches(host, KINDS, 1, LIKE)
    if not near or int(port) > MOST:  # workers serve only at ports above MOST
        return
    meant = f"{near[0]}:{port}"
    if is_alone:
        raise BadInputError(f"devices {short(address)}: {short(host)} is no kind of devices; did you mean {meant}?")
    raise BadInputError(f"devices {short(address)} cannot stand in a list of host:port; give {meant} alone.")
