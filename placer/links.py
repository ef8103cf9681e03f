"""What a tensor's way between two devices takes: the way itself, and the work it makes at both ends. Measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
import tensorflow as tf

from placer.topology import Link
from placer.variables import variable_on

# Floats a tensor, tensors a probe: from a scalar's size to beyond any cache, where a byte costs more.
PROBES = ((16, 8), (65_536, 8), (1_048_576, 4), (4_194_304, 4))
QUICK_PROBES, QUICK_REPEATS = PROBES[:3], 3  # an eighth of the time
REPEATS = 7
Probe = Callable[[str, str, Any, int], Callable[[], Any]]
LEAST_S = 1e-9
MOST_BYTES_PER_S = 1e13


def measure_links(
    names: Sequence[str],
    tf_names: Sequence[str],
    clock: Callable[[], float] = time.perf_counter,
    probes: Sequence[tuple[int, int]] = PROBES,
    repeats: int = REPEATS,
) -> tuple[Link, ...]:
    """One link for every ordered pair of devices. probes: (floats a tensor, tensors) of each, taken `repeats` times.

    Two probes per tensor size, each compared with the same work on one device. In the *chain* tensors cross there and
    back, one after the other: each takes send + way + receive. In the *stream*, one for each direction, independent
    tensors cross together, and a one-core end can do only one at a time: each takes the busier end's work,
    max(send, receive), which is charged to both. A straight line over the sizes splits each into a part per tensor
    and a part per byte.
    """
    links = []
    for a in range(len(names)):
        for b in range(a + 1, len(names)):
            hop = _line_over_sizes(_chain, tf_names[a], tf_names[b], clock, probes, repeats)
            for src, dst in ((a, b), (b, a)):
                busy = _line_over_sizes(_stream, tf_names[src], tf_names[dst], clock, probes, repeats)
                links.append(Link(names[src], names[dst], **_split(hop, busy)))
    return tuple(links)


def _line_over_sizes(
    probe: Probe, a: str, b: str, clock: Callable[[], float], probes: Sequence[tuple[int, int]], repeats: int
) -> tuple[float, float]:
    """Seconds per tensor and per byte that crossing adds to the probe."""
    sizes, seconds = [], []
    for floats, count in probes:
        start = tf.zeros([floats])
        apart_s, together_s = _alternate(probe(a, b, start, count), probe(a, a, start, count), clock, repeats)
        sizes.append(4.0 * floats)
        seconds.append(max(0.0, apart_s - together_s) / count)
    return _line(sizes, seconds)


def _split(hop: tuple[float, float], busy: tuple[float, float]) -> dict[str, float]:
    """A hop as the work of both ends and the way between them."""
    busy_s, busy_s_per_byte = min(busy[0], hop[0] / 2), min(busy[1], hop[1] / 2)
    way_s_per_byte = max(hop[1] - 2 * busy_s_per_byte, 1 / MOST_BYTES_PER_S)
    return {
        "latency_s": max(hop[0] - 2 * busy_s, LEAST_S),
        "bandwidth_bytes_per_s": 1 / way_s_per_byte,
        "send_s": busy_s,
        "send_s_per_byte": busy_s_per_byte,
        "receive_s": busy_s,
        "receive_s_per_byte": busy_s_per_byte,
    }


def _chain(a: str, b: str, start: tf.Tensor, count: int) -> Callable[[], Any]:
    """`count` tensors, each made on one end from the one that came from the other."""
    base_a, base_b = variable_on(a, start), variable_on(b, start)

    def probe() -> Any:
        first = tf.zeros([])
        for hop in range(count):
            here, there, base = (a, b, base_a) if hop % 2 == 0 else (b, a, base_b)
            with tf.device(here):
                tensor = base + first
            with tf.device(there):
                first = tf.reshape(tensor[:1], [])
        return first

    return _compiled(probe)


def _stream(a: str, b: str, start: tf.Tensor, count: int) -> Callable[[], Any]:
    """`count` tensors made on `a` that do not wait for one another, all used on `b`."""
    base = variable_on(a, start)

    def probe() -> Any:
        arrived = []
        for hop in range(count):
            with tf.device(a):
                tensor = base + float(hop)
            with tf.device(b):
                arrived.append(tf.reshape(tensor[:1], []))
        with tf.device(b):
            return tf.add_n(arrived)

    return _compiled(probe)


def _compiled(probe: Callable[[], Any]) -> Callable[[], Any]:
    compiled: Callable[[], Any] = tf.function(probe, autograph=False)
    return compiled


def _alternate(
    one: Callable[[], Any], other: Callable[[], Any], clock: Callable[[], float], repeats: int
) -> tuple[float, float]:
    """Median seconds of two probes, taken in turn so that drift meets both."""
    for probe in (one, other, one, other):
        probe().numpy()
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for probe, into in zip((one, other), seconds, strict=True):
            begin = clock()
            probe().numpy()
            into.append(clock() - begin)
    return median(seconds[0]), median(seconds[1])


def _line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Intercept and slope, neither below 0; weighted so that small and large sizes count alike (relative error)."""
    weights = 1 / np.maximum(np.asarray(y), 1e-6)
    design = np.stack([np.ones(len(x)), np.asarray(x)], axis=1) * weights[:, None]
    intercept, slope = np.linalg.lstsq(design, np.asarray(y) * weights, rcond=None)[0]
    return max(float(intercept), 0.0), max(float(slope), 0.0)
