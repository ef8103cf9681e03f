"""A reading of the load probes, and how much slower one reading is than another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from placer.errors import BadInputError

Pair = tuple[str, str]


@dataclass(frozen=True)
class Slowdown:
    """Time ratios to another reading: above 1 = slower now. Keys as in `LoadReading`."""

    devices: dict[str, float]
    links: dict[Pair, float]


@dataclass(frozen=True)
class LoadReading:
    """Seconds that the probes took: device name -> seconds, pair of device names in topology order -> seconds."""

    device_s: dict[str, float]
    link_s: dict[Pair, float]

    @classmethod
    def middle(cls, readings: Sequence[LoadReading]) -> LoadReading:
        """The median, probe by probe, of several readings of the same devices."""
        devices, links = readings[0].device_s, readings[0].link_s
        return cls(
            {name: median(reading.device_s[name] for reading in readings) for name in devices},
            {pair: median(reading.link_s[pair] for reading in readings) for pair in links},
        )

    def against(self, other: LoadReading) -> Slowdown:
        """How much slower this reading is than `other`. Raises BadInputError unless both have the same probes."""
        if (self.device_s.keys(), self.link_s.keys()) != (other.device_s.keys(), other.link_s.keys()):
            raise BadInputError("these readings are of different devices; compare two of the same LoadProbes.")
        return Slowdown(
            {name: seconds / other.device_s[name] for name, seconds in self.device_s.items()},
            {pair: seconds / other.link_s[pair] for pair, seconds in self.link_s.items()},
        )
