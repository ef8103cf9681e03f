"""A measured step as a Timeline, so that what was predicted and what ran are drawn alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from placer.graph import OpGraph
from placer.topology import Topology
from surrogate.timeline import Span, Timeline, Transfer

if TYPE_CHECKING:
    from placer.profiler import TracedOp, TracedStep

# "[3072B] [80.8Mb/s] edge_122_tower/Mean from /job:worker/replica:0/task:1/... to /job:worker/..."
LABEL = re.compile(r"^\[(?P<bytes>[\d.]+)(?P<unit>[KMG]?B)\].*? edge_\d+_(?P<op>.*) from ")
UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


def measured_timeline(graph: OpGraph, topology: Topology, devices: Sequence[int], step: TracedStep) -> Timeline:
    """What `step` did under the mapping `devices` (device index per op), from the first op's start."""
    spans = [
        Span(topology.index[op.device], "op", graph.index[op.name], op.start_s, op.end_s)
        for op in step.ops
        if op.name in graph.index
    ]
    transfers = [t for row in step.transfers if (t := _transfer(graph, topology, devices, row)) is not None]
    spans.sort(key=lambda span: span.start_s)
    return Timeline(graph, topology, tuple(devices), tuple(spans), tuple(sorted(transfers, key=lambda t: t.start_s)))


def _transfer(graph: OpGraph, topology: Topology, devices: Sequence[int], row: TracedOp) -> Transfer | None:
    """A row of TensorFlow's trace, or None where it carries an input of the step."""
    label = LABEL.match(row.name)
    if label is None or label["op"] not in graph.index:
        return None
    op = graph.index[label["op"]]
    link_bytes = float(label["bytes"]) * UNITS[label["unit"]]
    return Transfer(devices[op], topology.index[row.device], op, 0, link_bytes, row.start_s, row.end_s)
