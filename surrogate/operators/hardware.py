"""The speed of a device, measured by yardsticks, which lets one model time ops on devices of several speeds.

A model sees the floating-point operations and bytes of an op, and also the time that the device takes for a matrix
product of as many operations and for a sum of as many bytes. Both yardsticks are measured in a step, beside another op
of the same size, and by themselves. Their times include the effects of cores, caches and launches. For example, a
second core halves the time of a large product by itself, but hardly that of a product in a step, where another op uses
that core. Habitat (Yu et al. 2021) scales by the ratio of peaks instead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

import numpy as np

from placer.profile.operators.dataset import YARDSTICKS, OperatorRow
from surrogate.operators.features import traffic, work
from surrogate.operators.regressors import Floats

PEAK, BANDWIDTH = 100e9, 10e9  # FLOPs and bytes per second of the reference device
PRODUCT, SUM = "MatMul", "AddV2"
SOURCES = ("step", "single")

Curve = tuple[tuple[float, float], ...]
"""(size, seconds) of each yardstick, sizes ascending; seconds do not fall."""


@dataclass(frozen=True)
class Speed:
    """The times that a device takes for its yardsticks. The reference device has none: its speed is the same at any
    size.
    """

    products: Curve = ()  # by floating-point operations
    sums: Curve = ()  # by bytes read and written

    def flops(self, count: Floats) -> Floats:
        """Return how many FLOPs the reference device does in the time that this device takes for `count`."""
        return PEAK * _seconds(self.products, count) if self.products else count

    def traffic_bytes(self, count: Floats) -> Floats:
        """Return how many bytes the reference device moves in the time that this device takes for `count`."""
        return BANDWIDTH * _seconds(self.sums, count) if self.sums else count

    def features(self, flops: Floats, traffic_bytes: Floats) -> Floats:
        """Return the features of the device, [ops, 3] logarithms; [ops, 0] for the reference device.

        They are: how much slower than the reference device it is at products of these sizes and at sums of these sizes,
        and the seconds of its smallest sum.
        """
        if not self.products:
            return np.empty((len(flops), 0))
        slower = self.flops(flops) / np.maximum(flops, 1)
        farther = self.traffic_bytes(traffic_bytes) / np.maximum(traffic_bytes, 1)
        found: Floats = np.log(np.column_stack([slower, farther, np.full(len(flops), self.sums[0][1])]))
        return found


@dataclass(frozen=True)
class Hardware:
    """The speed of a device at ops inside a step, and at ops by themselves."""

    step: Speed = Speed()
    single: Speed = Speed()


REFERENCE = Hardware()


def hardware_of(rows: Iterable[OperatorRow]) -> dict[tuple[str, str], Hardware]:
    """Return (kind of device, machine) -> hardware, for devices on which each yardstick was measured both in a step and
    by itself. Repeated measurements count by their median.
    """
    times: dict[tuple[str, str], dict[tuple[str, str], dict[float, list[float]]]] = defaultdict(
        lambda: {(source, type_): defaultdict(list) for source in SOURCES for type_ in (PRODUCT, SUM)}
    )
    for row in rows:
        kind = row.source, row.operator.type
        if row.network == YARDSTICKS and row.median_s > 0 and kind in times[row.device_kind, row.machine]:
            size = work(row.operator) if row.operator.type == PRODUCT else traffic(row.operator)
            times[row.device_kind, row.machine][kind][size].append(row.median_s)
    return {
        device: Hardware(*(Speed(_curve(of[source, PRODUCT]), _curve(of[source, SUM])) for source in SOURCES))
        for device, of in times.items()
        if all(of.values()) and all(of["step", type_].keys() == of["single", type_].keys() for type_ in (PRODUCT, SUM))
    }


def _curve(times: dict[float, list[float]]) -> Curve:
    sizes = sorted(times)
    rising = np.maximum.accumulate([median(times[size]) for size in sizes]).tolist()
    return tuple(zip(sizes, rising, strict=True))


def _seconds(curve: Curve, sizes: Floats) -> Floats:
    """The seconds at each size: a power law between two yardsticks, in proportion to the size above the largest
    yardstick, and the time of the smallest yardstick below it.
    """
    at, seconds = np.log(np.array(curve).T)
    log_size = np.log(np.maximum(sizes, 1.0))
    found: Floats = np.exp(np.interp(log_size, at, seconds) + np.maximum(log_size - at[-1], 0.0))
    return found
