"""Memory limits that a user gives by device: parses sizes such as "10GiB", and limits the devices of a topology."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as MappingABC
from dataclasses import dataclass, replace
from decimal import Decimal

from placer.errors import BadInputError, listed, short
from placer.graph.topology import Topology

OPTION, KEYWORD = "--max-memory", "max_memory"
UNITS = {"": 1, "b": 1}
UNITS |= {f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)}
UNITS |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)}
SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([a-z]*)")
KNOWN_SIZES = "10GiB, 800MiB, 2.5GB or a number of bytes"


@dataclass(frozen=True)
class MemoryLimits:
    """The most bytes that devices may hold, by device name; a device that is not listed gets no limit here.

    option: how the user gave the limits, for messages.
    """

    by_device: tuple[tuple[str, int], ...] = ()
    option: str = KEYWORD

    @classmethod
    def parsed(cls, texts: Sequence[str]) -> MemoryLimits:
        """Parse limits of a command line, each DEVICE=SIZE. Raises BadInputError."""
        found: dict[str, int] = {}
        for text in texts:
            name, parted, size = (part.strip() for part in text.rpartition("="))
            if not parted or not name:
                raise BadInputError(f"{OPTION} {short(text)}: give DEVICE=SIZE, such as worker:0=800MiB.")
            if name in found:
                raise BadInputError(f"{OPTION} names {short(name)} twice; give it one limit.")
            found[name] = size_bytes(size, f"{OPTION} {short(text)}")
        return cls(tuple(found.items()), OPTION)

    @classmethod
    def of(cls, given: MappingABC[str, str | int] | None) -> MemoryLimits:
        """Parse limits of a keyword argument, {device name: size}. Raises BadInputError."""
        if given is None:
            return NO_LIMITS
        if not isinstance(given, MappingABC):
            raise BadInputError(f"{KEYWORD} is a {type(given).__name__}; write it as {{'worker:0': '800MiB'}}.")
        if unnamed := [name for name in given if not isinstance(name, str)]:
            raise BadInputError(f"{KEYWORD} has the key {short(repr(unnamed[0]))}; name devices, such as 'worker:0'.")
        return cls(tuple((name, size_bytes(size, f"{KEYWORD}[{short(name)}]")) for name, size in given.items()))

    def check(self, names: Iterable[str]) -> None:
        """Raises BadInputError for a limit of a device that is not in `names`."""
        known = tuple(names)
        unknown = [name for name, _ in self.by_device if name not in known]
        if unknown:
            raise BadInputError(f"{self.option}: {listed(unknown)} is no device here; the devices are {listed(known)}.")

    def on(self, topology: Topology, *, shares: bool = False) -> Topology:
        """The topology with the memory of these devices lowered to the limits; a device that has less keeps its memory.
        The memory then has to hold tensors, too, not only variables.

        shares: whether a CPU's memory is only its share of its machine's free memory; a limit then replaces it. Raises
        BadInputError for a device that the topology does not have.
        """
        self.check(topology.names)
        limit = dict(self.by_device)
        if not limit:
            return topology
        devices = []
        for device in topology.devices:
            guessed = shares and device.kind == "cpu" and device.name in limit
            has = None if guessed else device.memory_bytes
            devices.append(replace(device, memory_bytes=_lower(has, limit.get(device.name))))
        return replace(topology, devices=tuple(devices), counts_tensors=True)


NO_LIMITS = MemoryLimits()


def size_bytes(size: object, where: str) -> int:
    """Bytes of "10GiB", "800MiB", "2.5GB", "1000" or 1000. where: the beginning of the error message.

    Raises BadInputError.
    """
    if isinstance(size, int) and not isinstance(size, bool):
        found = size
    else:
        match = SIZE.fullmatch(size.strip().lower()) if isinstance(size, str) else None
        if match is None or match[2] not in UNITS:
            raise BadInputError(f"{where}: {short(str(size))} is no size; write {KNOWN_SIZES}.")
        found = int(Decimal(match[1]) * UNITS[match[2]])
    if found < 1:
        raise BadInputError(f"{where}: {short(str(size))} leaves no memory; give at least one byte.")
    return found


def _lower(one: int | None, other: int | None) -> int | None:
    """The lower of two limits; None = no limit."""
    given = [limit for limit in (one, other) if limit is not None]
    return min(given, default=None)
