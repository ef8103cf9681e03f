"""How fast a device is, by yardsticks: what lets one model time ops on devices of several speeds.

An op is described to a model not by its floating-point operations and bytes alone, but by what the device takes for a
matrix product of so many operations, and for a sum of so many bytes: in a step, beside another one of the same size,
and by itself. Cores, caches and what it takes to begin are in these times as they are. A second core, for one, halves
the time of a large product by itself, and hardly that of one in a step, where another op has that core. Habitat (Yu et
al. 2021) scales by the ratio of peaks instead.
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

PEAK, BANDWIDTH = 100e9, 10e9  # a second, of the device of reference
PRODUCT, SUM = "MatMul", "AddV2"
SOURCES = ("step", "single")

Curve = tuple[tuple[float, float], ...]
"""(size, seconds) of each yardstick, sizes ascending; seconds do not fall."""


@dataclass(frozen=True)
class Speed:
    """What a device takes for its yardsticks. The device of reference has none, and is as fast at any size."""

    products: Curve = ()  # by floating-point operations
    sums: Curve = ()  # by bytes read and written

    def flops(self, count: Floats) -> Floats:
        """As many floating-point operations as the device of reference does in the time that this one takes."""
        return PEAK * _seconds(self.products, count) if self.products else count

    def traffic_bytes(self, count: Floats) -> Floats:
        """As many bytes as the device of reference moves in the time that this one takes."""
        return BANDWIDTH * _seconds(self.sums, count) if self.sums else count

    def features(self, flops: Floats, traffic_bytes: Floats) -> Floats:
        """[ops, 3] what a model sees of the device, in logarithms: how it is slower than the device of reference at
        products and sums of these sizes, and at the smallest one; [ops, 0] of the device of reference.
        """
        if not self.products:
            return np.empty((len(flops), 0))
        slower = self.flops(flops) / np.maximum(flops, 1)
        farther = self.traffic_bytes(traffic_bytes) / np.maximum(traffic_bytes, 1)
        found: Floats = np.log(np.column_stack([slower, farther, np.full(len(flops), self.sums[0][1])]))
        return found


@dataclass(frozen=True)
class Hardware:
    """How fast a device is at ops inside a step, and at ops by themselves."""

    step: Speed = Speed()
    single: Speed = Speed()


REFERENCE = Hardware()


def hardware_of(rows: Iterable[OperatorRow]) -> dict[tuple[str, str], Hardware]:
    """(kind of device, machine) -> hardware, where yardsticks were measured, each both in a step and by itself; the
    median, where they were repeatedly.
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
    """Between two yardsticks by a power law; in proportion to the largest beyond it, and as the smallest below it."""
    at, seconds = np.log(np.array(curve).T)
    log_size = np.log(np.maximum(sizes, 1.0))
    found: Floats = np.exp(np.interp(log_size, at, seconds) + np.maximum(log_size - at[-1], 0.0))
    return found
