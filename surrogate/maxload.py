"""The max-load objective: the busiest device of a pipeline that takes one training step after another."""

from __future__ import annotations

from collections.abc import Sequence

from placer.graph import OpGraph
from placer.mapping import Mapping
from placer.topology import Topology
from surrogate.costs import Costs


def max_load(graph: OpGraph, costs: Costs, mapping: Mapping) -> float:
    """Seconds per step of the device with the largest load. costs: [ops, devices] seconds."""
    return max(loads(graph, costs.tolist(), mapping.topology, mapping.devices))


def loads(
    graph: OpGraph, cost_rows: Sequence[Sequence[float]], topology: Topology, devices: Sequence[int]
) -> list[float]:
    """Seconds of load per device: its ops' costs, and the distinct tensors it receives and sends.

    A tensor is sent once however many devices receive it, and received once however many ops there use it.
    """
    load = [0.0] * len(topology)
    for row, d in zip(cost_rows, devices, strict=True):
        load[d] += row[d]
    crossings = {(e.src, e.output_index, devices[e.dst]) for e in graph.edges if devices[e.src] != devices[e.dst]}
    size = graph.tensor_bytes
    for src, index, d in crossings:
        ingress = topology.devices[d].ingress_bytes_per_s
        if ingress is not None:
            load[d] += size[src, index] / ingress
    for src, index in {crossing[:2] for crossing in crossings}:
        egress = topology.devices[devices[src]].egress_bytes_per_s
        if egress is not None:
            load[devices[src]] += size[src, index] / egress
    return load
