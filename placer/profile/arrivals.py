"""What bringing a step's batch from the host's memory to a GPU takes, as a cost of the ops that take it there.

A profile's batch lies on each device as constants; in training it is in the host's memory, where an input pipeline
left it, and TensorFlow copies it once to each GPU that uses it. On an H100 the kernels of AlexNet's step took 13 of its
24 ms, and its batch has 79 MB (docs/decisions/037-first-gpu.md).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import tensorflow as tf

from placer.devices.cluster import Devices
from placer.devices.gpu_wait import drain
from placer.trace.capture import Captured
from placer.trace.graph_def.node_def import source_of

REPEATS = 3

Seconds = Mapping[str, Mapping[str, float]]
"""Name -> device name -> seconds."""


def arrivals(captured: Captured, devices: Devices, inputs: Sequence[Any]) -> dict[str, dict[str, float]]:
    """Op name -> GPU of this process -> seconds to bring there what the op takes of the batch, as measured now.

    Ops that take the same tensor share its seconds evenly. Tensors that are there already take none.
    """
    gpus = {
        device.name: devices.tf_names[device.name]
        for device in devices.topology.devices
        if device.kind == "gpu" and device.address is None
    }
    if not gpus:
        return {}
    took = {
        name: {gpu: copy_s(tensor, tf_name) for gpu, tf_name in gpus.items()}
        for name, tensor in zip(captured.input_names, inputs, strict=True)
    }
    return shared(took, takers(captured.graph_def.node, captured.input_names, captured.graph.index))


def takers(nodes: Iterable[Any], inputs: Iterable[str], ops: Iterable[str]) -> dict[str, list[str]]:
    """Input -> those of `ops` that take it. nodes: NodeDefs."""
    known, found = set(ops), {name: list[str]() for name in inputs}
    for node in nodes:
        if node.name in known:
            for source in dict.fromkeys(source_of(text) for text in node.input):
                if source in found:
                    found[source].append(node.name)
    return found


def shared(took: Seconds, takers_of: Mapping[str, Sequence[str]]) -> dict[str, dict[str, float]]:
    """Op name -> device -> its share of the seconds of the inputs that it takes."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for name, seconds in took.items():
        for op in takers_of[name]:
            for device, s in seconds.items():
                found[op][device] += s / len(takers_of[name])
    return {op: dict(seconds) for op, seconds in found.items()}


def copy_s(tensor: Any, tf_name: str, clock: Callable[[], float] = time.perf_counter) -> float:
    """Median seconds of copying a tensor to a GPU, less what copying nothing takes; 0 of what is never copied there, or
    does not fit.
    """
    if tf.as_dtype(tensor.dtype) in (tf.string, tf.resource, tf.variant):
        return 0.0
    with tf.device("CPU:0"):
        nothing = tf.zeros([0])

    def took_s(one: Any) -> float:
        with tf.device("CPU:0"):
            fresh = tf.identity(one)  # TensorFlow keeps the copy with the handle that was copied, and copies it no more
        begin = clock()
        with tf.device(tf_name):
            tf.identity(fresh)
        drain()
        return clock() - begin

    try:
        in_turn = [(took_s(nothing), took_s(tensor)) for _ in range(1 + REPEATS)][1:]  # the first one sets up
    except tf.errors.ResourceExhaustedError:
        return 0.0
    return max(0.0, median(whole - empty for empty, whole in in_turn))
