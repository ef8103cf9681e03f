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

PROBE_FLOATS = (16, 16_384, 262_144, 1_048_576)
HOPS = 8
REPEATS = 7
LEAST_S = 1e-9
MOST_BYTES_PER_S = 1e13


def measure_links(
    names: Sequence[str], tf_names: Sequence[str], clock: Callable[[], float] = time.perf_counter
) -> tuple[Link, ...]:
    """One link each way for every pair of devices.

    Two probes per tensor size, each compared with the same work on one device. In the *chain* HOPS tensors cross one
    after the other: each takes send + way + receive. In the *stream* HOPS independent tensors cross together, and a
    one-core end can do only one at a time: each takes the busier end's work, max(send, receive), which is
    charged to both. A straight line over the sizes splits each into a part per tensor and a part per byte.
    """
    links = []
    for a in range(len(names)):
        for b in range(a + 1, len(names)):
            link = _measure_pair(tf_names[a], tf_names[b], clock)
            links += [_between(names[a], names[b], link), _between(names[b], names[a], link)]
    return tuple(links)


def _between(src: str, dst: str, numbers: dict[str, float]) -> Link:
    return Link(src, dst, **numbers)


def _measure_pair(a: str, b: str, clock: Callable[[], float]) -> dict[str, float]:
    sizes = [4.0 * n for n in PROBE_FLOATS]
    chains, streams = [], []
    for floats in PROBE_FLOATS:
        start = tf.zeros([floats])
        chain_s, chain_home_s = _alternate(_chain(a, b, start), _chain(a, a, start), clock)
        stream_s, stream_home_s = _alternate(_stream(a, b, start), _stream(a, a, start), clock)
        chains.append(max(0.0, chain_s - chain_home_s) / HOPS)
        streams.append(max(0.0, stream_s - stream_home_s) / HOPS)
    hop_s, hop_s_per_byte = _line(sizes, chains)
    busy_s, busy_s_per_byte = _line(sizes, streams)
    busy_s, busy_s_per_byte = min(busy_s, hop_s / 2), min(busy_s_per_byte, hop_s_per_byte / 2)
    way_s_per_byte = max(hop_s_per_byte - 2 * busy_s_per_byte, 1 / MOST_BYTES_PER_S)
    return {
        "latency_s": max(hop_s - 2 * busy_s, LEAST_S),
        "bandwidth_bytes_per_s": 1 / way_s_per_byte,
        "send_s": busy_s,
        "send_s_per_byte": busy_s_per_byte,
        "receive_s": busy_s,
        "receive_s_per_byte": busy_s_per_byte,
    }


def _chain(a: str, b: str, start: tf.Tensor) -> Callable[[], Any]:
    """HOPS tensors, each made on one end from the one that came from the other."""
    base_a, base_b = variable_on(a, start), variable_on(b, start)

    def probe() -> Any:
        first = tf.zeros([])
        for hop in range(HOPS):
            here, there, base = (a, b, base_a) if hop % 2 == 0 else (b, a, base_b)
            with tf.device(here):
                tensor = base + first
            with tf.device(there):
                first = tf.reshape(tensor[:1], [])
        return first

    return _compiled(probe)


def _stream(a: str, b: str, start: tf.Tensor) -> Callable[[], Any]:
    """HOPS tensors made on `a` that do not wait for one another, all used on `b`."""
    base = variable_on(a, start)

    def probe() -> Any:
        arrived = []
        for hop in range(HOPS):
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


def _alternate(one: Callable[[], Any], other: Callable[[], Any], clock: Callable[[], float]) -> tuple[float, float]:
    """Median seconds of two probes, taken in turn so that drift meets both."""
    for probe in (one, other, one, other):
        probe().numpy()
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(REPEATS):
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
