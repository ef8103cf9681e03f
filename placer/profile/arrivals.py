"""The cost of bringing a step's batch from the host's memory to a GPU, as part of the costs of ops that take it there.

In a profile the batch lies on each device as constants. In training it is in the host's memory, where an input pipeline
left it, and is copied once to each GPU that uses it. On an H100 the kernels of AlexNet's step took 13 of its 24 ms, and
its batch of 79 MB another 12 (docs/decisions/037-first-gpu.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import tensorflow as tf

from placer.devices.cluster import Devices
from placer.devices.links.staging import NEVER_COPIED, brought_s, on_gpus
from placer.trace.capture import Captured
from placer.trace.graph_def.node_def import source_of

Seconds = Mapping[str, Mapping[str, float]]
"""Name -> device name -> seconds."""


def arrivals(captured: Captured, devices: Devices, inputs: Sequence[Any]) -> dict[str, dict[str, float]]:
    """Op name -> GPU of this process -> seconds to bring the op's part of the batch there, as measured now.

    Ops that take the same tensor share its seconds evenly. A tensor that lies on a GPU already costs nothing, because
    the program brought it before the step.
    """
    if not (gpus := devices.own_gpus):
        return {}
    seconds_of = cache(lambda size_bytes, tf_name: _seconds(devices, tf_name, size_bytes))
    arrived = on_gpus(inputs)
    took = {
        name: {gpu: seconds_of(copied_bytes(tensor), tf_name) for gpu, tf_name in gpus.items()}
        for i, (name, tensor) in enumerate(zip(captured.input_names, inputs, strict=True))
        if i not in arrived
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


def copied_bytes(tensor: Any) -> int:
    """Bytes of a tensor that are copied to a GPU; 0 if the tensor stays in the host's memory."""
    dtype = tf.as_dtype(tensor.dtype)
    return 0 if dtype in NEVER_COPIED else int(tf.size(tensor)) * int(dtype.size)


def _seconds(devices: Devices, tf_name: str, size_bytes: int) -> float:
    """Seconds to bring `size_bytes` to a GPU; 0 if they do not fit there."""
    if not size_bytes:
        return 0.0
    is_staged = devices.stages_from is not None and size_bytes >= devices.stages_from
    try:
        return brought_s(devices.host, tf_name, size_bytes, is_staged=is_staged)
    except tf.errors.ResourceExhaustedError:
        return 0.0
