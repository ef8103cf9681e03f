"""Graphs and topologies as JSON files: placer.graph/1 and placer.topology/1."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, cast

import msgspec

from placer.errors import BadInputError, short
from placer.files import Document, Name, read_document, write_document
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology

GRAPH_FORMAT = "placer.graph/1"
TOPOLOGY_FORMAT = "placer.topology/1"
Text = Annotated[str, msgspec.Meta(max_length=100_000)]
# Bytes and seconds may be written as 0 or 0.0. No real value reaches these bounds, and sums within them stay finite.
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Bytes = Annotated[float, msgspec.Meta(ge=0, le=1e18)]
Rate = Annotated[float, msgspec.Meta(ge=1e-9)]
Index = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]


class OpEntry(Document):
    """One element of `ops`."""

    name: Name
    cost_s: dict[Name, Seconds]
    memory_bytes: Bytes
    type: Name = ""
    colocate: Name | None = None
    devices: list[Name] | None = None
    phase: Literal["forward", "backward", "update"] | None = None


class EdgeEntry(msgspec.Struct, array_like=True, forbid_unknown_fields=True, omit_defaults=True):
    """One element of `edges`: [src, dst, bytes] or [src, dst, bytes, output_index]."""

    src: Name
    dst: Name
    edge_bytes: Bytes
    output_index: Index = 0


class GraphFile(Document):
    """placer.graph/1."""

    format: Annotated[str, msgspec.Meta(description=GRAPH_FORMAT)]
    name: Name
    ops: list[OpEntry]
    edges: list[EdgeEntry]
    source: Text | None = None


class DeviceEntry(Document):
    """One element of `devices`."""

    name: Name
    kind: Name
    memory_bytes: Bytes | None = None
    speed: Rate = 1.0
    ingress_bytes_per_s: Rate | None = None
    egress_bytes_per_s: Rate | None = None
    address: Name | None = None
    node: Name | None = None


class LinkEntry(Document):
    """One element of `links`."""

    src: Name
    dst: Name
    latency_s: Seconds
    bandwidth_bytes_per_s: Rate
    send_s: Seconds = 0.0
    send_s_per_byte: Seconds = 0.0
    receive_s: Seconds = 0.0
    receive_s_per_byte: Seconds = 0.0
    tier: Literal["within", "between"] | None = None


class TopologyFile(Document):
    """placer.topology/1."""

    format: str
    devices: Annotated[list[DeviceEntry], msgspec.Meta(max_length=1000)]
    links: list[LinkEntry] = msgspec.field(default_factory=list)
    contention: Literal["none", "link", "port"] = "none"


def is_graph_file(name: str) -> bool:
    """Whether `name` names a graph file, and not a model (a zoo name, file.py:function, ...)."""
    try:
        return name.endswith(".json") or (":" not in name and Path(name).is_file())
    except OSError:  # longer than any file's name
        return False


def read_graph(path: str | Path) -> OpGraph:
    """Read a placer.graph/1 file. Raises BadInputError."""
    file = read_document(path, GraphFile, GRAPH_FORMAT)
    known = {op.name: i for i, op in enumerate(file.ops)}
    for i, edge in enumerate(file.edges):
        for end in (edge.src, edge.dst):
            if end not in known:
                raise BadInputError(
                    f"{path}: $.edges[{i}] names {short(end)}, which is none of $.ops; add it or correct it."
                )
    ops = tuple(_op(entry) for entry in file.ops)
    edges = tuple(Edge(known[e.src], known[e.dst], _whole(e.edge_bytes), e.output_index) for e in file.edges)
    try:
        return OpGraph(file.name, ops, edges, file.source)
    except BadInputError as error:
        raise BadInputError(f"{path}: {error}") from None


def write_graph(path: str | Path, graph: OpGraph) -> None:
    """Write `graph` as placer.graph/1. Raises PlacerError if it cannot be written."""
    names = [op.name for op in graph.ops]
    ops = [
        OpEntry(
            name=op.name,
            cost_s=dict(op.cost_s),
            memory_bytes=op.memory_bytes,
            type=op.type,
            colocate=op.colocate,
            devices=None if op.devices is None else list(op.devices),
            phase=cast(Literal["forward", "backward", "update"] | None, op.phase),
        )
        for op in graph.ops
    ]
    edges = [EdgeEntry(names[e.src], names[e.dst], e.edge_bytes, e.output_index) for e in graph.edges]
    write_document(path, GraphFile(GRAPH_FORMAT, graph.name, ops, edges, graph.source))


def read_topology(path: str | Path) -> Topology:
    """Read a placer.topology/1 file. Raises BadInputError."""
    file = read_document(path, TopologyFile, TOPOLOGY_FORMAT)
    devices = tuple(
        Device(
            **{
                **msgspec.structs.asdict(entry),
                "memory_bytes": None if entry.memory_bytes is None else _whole(entry.memory_bytes),
            }
        )
        for entry in file.devices
    )
    links = tuple(Link(**msgspec.structs.asdict(entry)) for entry in file.links)
    try:
        return Topology(devices, links, file.contention, counts_tensors=False)
    except BadInputError as error:
        raise BadInputError(f"{path}: {error}") from None


def write_topology(path: str | Path, topology: Topology) -> None:
    """Write `topology` as placer.topology/1. Raises PlacerError if it cannot be written."""
    devices = [msgspec.convert(device, DeviceEntry, from_attributes=True) for device in topology.devices]
    links = [msgspec.convert(link, LinkEntry, from_attributes=True) for link in topology.links]
    contention = cast(Literal["none", "link", "port"], topology.contention)
    write_document(path, TopologyFile(TOPOLOGY_FORMAT, devices, links, contention))


def _op(entry: OpEntry) -> Op:
    return Op(
        name=entry.name,
        type=entry.type,
        cost_s=entry.cost_s,
        memory_bytes=_whole(entry.memory_bytes),
        colocate=entry.colocate or None,  # some exporters write "" for none
        devices=None if entry.devices is None else tuple(entry.devices),
        phase=entry.phase,
    )


def _whole(number: float) -> int:
    """Bytes as an int if whole; fractions, which averaged profiles have, are kept."""
    return int(number) if number.is_integer() else cast(int, number)
