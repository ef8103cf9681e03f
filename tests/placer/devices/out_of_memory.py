"""Asks a worker for more than it may take, by limits that TensorFlow's allocator and the kernel enforce.

Run by test_real_limits.py in a process of its own. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import tensorflow as tf

from placer.devices.cluster import Devices
from placer.devices.opening import open_devices
from placer.graph.held_memory import peaks_in_order
from placer.graph.mapping import Mapping
from placer.graph.memory_limits import MemoryLimits
from placer.measure.runner import NoForesight, Runner
from placer.measure.settings import RunnerSettings
from placer.measure.untouched import measure_untouched
from placer.trace.capture import capture

FEW = RunnerSettings(warm_up=1, repeats=3)
MIB = 2**20
LIMIT_MIB, FENCE_MIB = 100, 128  # 164 for the allocator, 228 in all
LAYERS, WIDTH = 48, 1024  # 4 MiB each: 192 of variables


def model() -> tuple[Any, list[tf.Variable], list[Any]]:
    """Layers that are all updated; TensorFlow may compute all updates before it writes any."""
    weights = [tf.Variable(tf.random.stateless_normal([WIDTH, WIDTH], [i, 8]) / 32.0) for i in range(LAYERS)]

    @tf.function
    def step(x: Any) -> Any:
        for weight in weights:
            x = tf.tanh(tf.linalg.matvec(weight, x))
            weight.assign(weight * 0.999)
        return tf.reduce_sum(x)

    return step, weights, [tf.random.stateless_normal([WIDTH], [1, 2])]


class Known(NoForesight):
    """Peaks that were computed before."""

    def __init__(self, peaks: dict[Mapping, Sequence[float]]) -> None:
        self.known = peaks

    def peaks(self, mapping: Mapping) -> Sequence[float]:
        return self.known[mapping]


def measured(devices: Devices, spread: Sequence[bool]) -> dict[str, Any]:
    """What a step came to on one worker (False), or with the second half of its layers on the other (True)."""
    step, weights, inputs = model()
    captured = capture(step, (inputs[0],), "deep")
    before = [weight.numpy() for weight in weights]
    flat = captured.flat_inputs((inputs[0],))
    references = measure_untouched(captured, flat, FEW).references
    graph, count = captured.graph, len(devices.topology)
    unlimited = replace(
        devices.topology, devices=tuple(replace(d, memory_bytes=None) for d in devices.topology.devices)
    )
    half = set(list(captured.variables)[LAYERS // 2 :])
    second = {v for unit in graph.colocated if any(graph.ops[v].name in half for v in unit) for v in unit}
    for v in graph.order:  # what comes after the first of these layers goes along
        if any(edge.src in second for edge in graph.edges if edge.dst == v):
            second.add(v)
    mappings = [
        Mapping(graph, unlimited, tuple(int(wide and v in second) for v in range(len(graph)))) for wide in spread
    ]
    peaks = [peaks_in_order(graph, mapping.devices, count) for mapping in mappings]
    known = dict(zip(mappings, peaks, strict=True))
    runner = Runner(captured, devices, flat, references, FEW, foresight=Known(known))
    results = [runner.measure(mapping) for mapping in mappings]
    runner.close()
    unharmed = all(np.array_equal(a, b.numpy()) for a, b in zip(before, weights, strict=True))
    return {"results": [asdict(result) for result in results], "peaks_bytes": peaks, "unharmed": unharmed}


def main() -> None:
    os.environ["PLACER_FENCE_MIB"] = str(FENCE_MIB)
    limits = MemoryLimits.of(dict.fromkeys(("worker:0", "worker:1"), f"{LIMIT_MIB}MiB"))
    with open_devices("workers:2", resilient=True, max_memory=limits, links=False) as devices:
        assert devices.workers is not None
        found = measured(devices, (False, True))
        alive = [devices.workers.running(task) for task in range(2)]
    print(json.dumps({**found, "alive": alive}))


if __name__ == "__main__":
    main()
