"""How fast each device and each link is right now, measured by a few probe ops.

The ratios between two readings tell a slow device from a slow link. Two processes of equal priority take turns of
3-4 ms on a core, so a probe lasts longer than one turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from statistics import median
from typing import Any

import tensorflow as tf

from placer.devices.cluster import Devices
from placer.devices.load.load_reading import LoadReading, Pair, Slowdown
from placer.devices.variables import variable_on
from placer.devices.workers.deadline import waiting

PROBE_S = 5e-3
MOST_DOUBLINGS = 12
REPEATS = 3
SIDE = 256  # one product takes 0.5 ms on one core
LINK_FLOATS = 65_536  # 256 KB
HOPS = 8

__all__ = ["LoadProbes", "LoadReading", "Pair", "Slowdown"]


class LoadProbes:
    """Probes for these devices, without side effects; compiling and sizing them, once, takes tenths of a second.

    A device's probe multiplies matrices until that takes between `PROBE_S` and twice that. A link's probe sends 256 KB
    back and forth four times. Make new probes after reconnecting: these lose their variables.
    """

    def __init__(
        self,
        devices: Devices,
        clock: Callable[[], float] = time.perf_counter,
        products: Mapping[str, int] | None = None,
    ) -> None:
        """products: how many matrix products the probe of a device takes, as `products` of other probes, with which
        these are to be compared; the probe of a device that is not among them is sized.
        """
        names = devices.topology.names
        tf_names = devices.tf_names
        self._clock = clock
        self.products = dict(products or {})
        with waiting("probes of the load were made", first=True):
            self._make(names, tf_names)

    def _make(self, names: Sequence[str], tf_names: Mapping[str, str]) -> None:
        squares = {name: variable_on(tf_names[name], tf.fill([SIDE, SIDE], 1.0 / SIDE)) for name in names}
        vectors = {name: variable_on(tf_names[name], tf.zeros([LINK_FLOATS])) for name in names}
        self._kept = (squares, vectors)  # functions do not keep the variables that they read alive
        self._devices = {name: self._sized(name, square) for name, square in squares.items()}
        self._links = {(a, b): _there_and_back(vectors[a], vectors[b]) for a, b in combinations(names, 2)}
        for probe in self._links.values():
            for _ in range(2):
                self._timed(probe)

    def take(self) -> LoadReading:
        """The median of `REPEATS` rounds over all devices and links, so that one short disturbance does not count."""
        probes: list[Callable[[], Any]] = [*self._devices.values(), *self._links.values()]
        rounds = [[self._timed(probe) for probe in probes] for _ in range(REPEATS)]
        seconds = [median(column) for column in zip(*rounds, strict=True)]
        count = len(self._devices)
        return LoadReading(
            dict(zip(self._devices, seconds[:count], strict=True)),
            dict(zip(self._links, seconds[count:], strict=True)),
        )

    def device(self, name: str) -> float:
        """Seconds of one device's probe, the median of `REPEATS`."""
        return median(self._timed(self._devices[name]) for _ in range(REPEATS))

    def link(self, pair: Pair) -> float:
        """Seconds of one link's probe, the median of `REPEATS`. pair: names of devices in topology order."""
        return median(self._timed(self._links[pair]) for _ in range(REPEATS))

    def _timed(self, probe: Callable[[], Any]) -> float:
        begin = self._clock()
        with waiting("the load was probed"):
            probe().numpy()
        return self._clock() - begin

    def _sized(self, name: str, square: tf.Variable) -> Callable[[], Any]:
        """The device's probe, with the number of products doubled until it takes `PROBE_S`, unless that was given."""
        given = self.products.get(name)
        for count in [2**doubling for doubling in range(MOST_DOUBLINGS + 1)] if given is None else [given]:
            probe = _products(square, count)
            for _ in range(2):
                self._timed(probe)
            if self._timed(probe) >= PROBE_S:
                break
        self.products[name] = count
        return probe


def _products(square: tf.Variable, count: int) -> Callable[[], Any]:
    """`count` matrix products in a row on the variable's device, each with the variable, so that none can be folded.

    All entries are 1 / SIDE and stay so. The products are unrolled because a loop changes threads and waits for its
    turn on the core each time: beside a busy process it would be ten times slower instead of twice.
    """

    def products() -> Any:
        with tf.device(square.device):
            last = square.read_value()
            for _ in range(count):
                last = tf.matmul(last, square)
            return last[0, 0]

    return _compiled(products)


def _there_and_back(a: tf.Variable, b: tf.Variable) -> Callable[[], Any]:
    """`HOPS` tensors that cross one after the other; each is computed from the tensor that the other end has sent."""

    def cross() -> Any:
        with tf.device(a.device):
            first = tf.reshape(a[:1], [])
        for hop in range(HOPS):
            here, there = (a, b) if hop % 2 == 0 else (b, a)
            with tf.device(here.device):
                tensor = here + first
            with tf.device(there.device):
                first = tf.reshape(tensor[:1], [])
        return first

    return _compiled(cross)


def _compiled(probe: Callable[[], Any]) -> Callable[[], Any]:
    """Trace `probe` now and call the concrete function, which avoids TensorFlow's warning about retracing."""
    compiled: Callable[[], Any] = tf.function(probe, autograph=False).get_concrete_function()
    return compiled
