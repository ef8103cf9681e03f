"""Measures a transfer between two devices: latency, bandwidth, and the work at both ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Any

import numpy as np
import tensorflow as tf

from placer.devices.links.link_pairs import representatives
from placer.devices.variables import variable_on
from placer.devices.workers.deadline import waiting
from placer.graph.topology import ANY, Link

# (floats per tensor, tensors per probe): from a scalar's size to beyond any cache, where a byte costs more.
PROBES = ((16, 8), (65_536, 8), (1_048_576, 4), (4_194_304, 4))
QUICK_PROBES, QUICK_REPEATS = PROBES[:3], 3  # an eighth of the time
REPEATS = 7
Probe = Callable[[str, str, Any, int], Callable[[], Any]]
LEAST_S = 1e-9
MOST_BYTES_PER_S = 1e13


def probes_within(memory_bytes: float) -> Sequence[tuple[int, int]]:
    """The probes that fit into `memory_bytes` of a device; at least the two smallest, because a line needs two."""
    # Both ends hold the tensors of a stream, and gRPC holds another copy.
    fit = [probe for probe in PROBES if 12 * probe[0] * (probe[1] + 1) <= memory_bytes]
    return fit if len(fit) > 1 else PROBES[:2]


def measure_links(
    names: Sequence[str],
    tf_names: Sequence[str],
    clock: Callable[[], float] = time.perf_counter,
    probes: Sequence[tuple[int, int]] = PROBES,
    repeats: int = REPEATS,
    nodes: Sequence[str | None] = (),
) -> tuple[Link, ...]:
    """Measure one link per ordered pair of devices. probes: (floats per tensor, tensors) of each, run `repeats` times.
    nodes: of each device; if all are known and devices are many, a few links between nodes stand for all of them.

    There are two kinds of probes per tensor size, each compared with the same work on one device, where nothing
    crosses. In the *chain*, tensors cross back and forth one after the other: each takes send + transfer + receive.
    Each end does half of the work, so the reference is the mean of both ends alone. In the *stream*, one for each
    direction, independent tensors cross together, and a one-core end handles one at a time: each takes the busier end's
    work, max(send, receive), which is charged to both ends. A line fitted over the sizes gives a part per tensor and a
    part per byte. To and from a GPU there is no stream: its copies run beside its kernels and queue for the link
    (`contention` "link"), not for compute.
    """
    links = []
    kinds = ["gpu" if "/device:GPU:" in tf_name else "cpu" for tf_name in tf_names]
    for (a, b), alike in representatives(kinds, nodes or [None] * len(names)).items():
        ends = tf_names[a], tf_names[b]
        with waiting("links were measured", first=True):
            hop = _line_over_sizes(_chain, ends, ends, clock, probes, repeats)
        for forth in (True, False):
            busy = 0.0, 0.0
            if "gpu" not in (kinds[a], kinds[b]):
                way = ends if forth else ends[::-1]
                with waiting("links were measured", first=True):
                    busy = _line_over_sizes(_stream, way, way[:1], clock, probes, repeats)
            for pair in alike:
                src, dst = pair if forth else pair[::-1]
                links.append(replace(_split(hop, busy), src=names[src], dst=names[dst]))
    return tuple(links)


def _line_over_sizes(
    probe: Probe,
    way: tuple[str, str],
    alone: Sequence[str],
    clock: Callable[[], float],
    probes: Sequence[tuple[int, int]],
    repeats: int,
) -> tuple[float, float]:
    """Seconds per tensor and per byte that crossing `way` adds to the probe, compared with the mean of running it on
    each of the devices `alone`.
    """
    sizes, seconds = [], []
    for floats, count in probes:
        start = tf.zeros([floats])
        ends = [way, *((end, end) for end in alone)]
        apart_s, *together_s = in_turn([probe(a, b, start, count) for a, b in ends], clock, repeats)
        sizes.append(4.0 * floats)
        seconds.append(max(0.0, apart_s - fmean(together_s)) / count)
    return _line(sizes, seconds)


def _split(hop: tuple[float, float], busy: tuple[float, float]) -> Link:
    """Split a hop into the work of both ends and the transfer between them, as a link between any devices. hop, busy:
    seconds per tensor and per byte, of the whole hop and of one end's work.
    """
    busy_s, busy_s_per_byte = min(busy[0], hop[0] / 2), min(busy[1], hop[1] / 2)
    way_s_per_byte = max(hop[1] - 2 * busy_s_per_byte, 1 / MOST_BYTES_PER_S)
    return Link(
        ANY,
        ANY,
        latency_s=max(hop[0] - 2 * busy_s, LEAST_S),
        bandwidth_bytes_per_s=1 / way_s_per_byte,
        send_s=busy_s,
        send_s_per_byte=busy_s_per_byte,
        receive_s=busy_s,
        receive_s_per_byte=busy_s_per_byte,
    )


def _chain(a: str, b: str, start: tf.Tensor, count: int) -> Callable[[], Any]:
    """A probe of `count` tensors, each computed on one end from the tensor that the other end sent."""
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
    """A probe of `count` independent tensors made on `a`, all used on `b`."""
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


def in_turn(probes: Sequence[Callable[[], Any]], clock: Callable[[], float], repeats: int) -> list[float]:
    """Median seconds of each probe, interleaved so that drift affects all alike. A probe's last tensor needs all
    others, so fetching it waits for everything, on a GPU too.
    """
    for probe in (*probes, *probes):
        probe().numpy()
    seconds: list[list[float]] = [[] for _ in probes]
    for _ in range(repeats):
        for probe, into in zip(probes, seconds, strict=True):
            begin = clock()
            probe().numpy()
            into.append(clock() - begin)
    return [median(s) for s in seconds]


def _line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Intercept and slope of the fitted line, each at least 0; weighted so that small and large sizes count alike
    (relative error).
    """
    weights = 1 / np.maximum(np.asarray(y), 1e-6)
    design = np.stack([np.ones(len(x)), np.asarray(x)], axis=1) * weights[:, None]
    intercept, slope = np.linalg.lstsq(design, np.asarray(y) * weights, rcond=None)[0]
    return max(float(intercept), 0.0), max(float(slope), 0.0)
