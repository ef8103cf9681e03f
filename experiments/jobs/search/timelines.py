"""A measured step as a Timeline, so that it is drawn like a predicted one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from surrogate.simulate.timeline import Span, Timeline, Transfer

if TYPE_CHECKING:
    from placer.profile.step_trace import TracedOp, TracedStep

# "[3072B] [80.8Mb/s] edge_122_tower/Mean from /job:worker/replica:0/task:1/... to /job:worker/..."
LABEL = re.compile(r"^\[(?P<bytes>[\d.]+)(?P<unit>[KMG]?B)\].*? edge_\d+_(?P<op>.*) from ")
SENDS = ("_Send", "_HostSend")
UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


def one_trace(predicted: Timeline, measured: Timeline) -> dict[str, Any]:
    """Both timelines as one Chrome trace of two processes, "predicted" above "measured", for ui.perfetto.dev."""
    above, below = predicted.to_trace("predicted", pid=1), measured.to_trace("measured", pid=2)
    return {**above, "traceEvents": [*above["traceEvents"], *below["traceEvents"]]}


def measured_timeline(graph: OpGraph, topology: Topology, devices: Sequence[int], step: TracedStep) -> Timeline:
    """The timeline of `step` under the mapping `devices` (device index per op), from the first op's start.

    An op with kernels on a GPU is busy from its first kernel to its last. An op of a GPU without kernels is not shown,
    because it takes only the host's time; it is shown if the trace has no kernels at all.
    """
    hosted = {device.name for device in topology.devices if device.kind == "gpu"} if step.kernel_s else set()
    rows = [row for row in step.ops if row.kernel_s is not None or row.device not in hosted]
    spans = [span for row in rows if (span := _span(graph, topology, row)) is not None]
    transfers = [t for row in step.transfers if (t := _transfer(graph, topology, devices, row)) is not None]
    spans.sort(key=lambda span: span.start_s)
    return Timeline(graph, topology, tuple(devices), tuple(spans), tuple(sorted(transfers, key=lambda t: t.start_s)))


def _span(graph: OpGraph, topology: Topology, row: TracedOp) -> Span | None:
    """The span of an op of the graph, or of a send that the mapping added ("net/a/cut_3_send" sends for net/a); None
    for other rows.

    Receives are left out, because they wait most of their time.
    """
    maker = row.name.rpartition("/")[0]
    if row.name in graph.index:
        return Span(topology.index[row.device], "op", graph.index[row.name], row.start_s, row.end_s)
    if row.type in SENDS and maker in graph.index:
        return Span(topology.index[row.device], "send", graph.index[maker], row.start_s, row.end_s)
    return None


def _transfer(graph: OpGraph, topology: Topology, devices: Sequence[int], row: TracedOp) -> Transfer | None:
    """The transfer of a row of TensorFlow's trace; None if it carries an input or stays on its device."""
    label = LABEL.match(row.name)
    if label is None or label["op"] not in graph.index:
        return None
    op, dst = graph.index[label["op"]], topology.index[row.device]
    link_bytes = float(label["bytes"]) * UNITS[label["unit"]]
    return None if devices[op] == dst else Transfer(devices[op], dst, op, 0, link_bytes, row.start_s, row.end_s)
