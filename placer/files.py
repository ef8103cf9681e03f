"""The file edge: graphs and topologies as JSON, checked at the door.

Bad input is a BadInputError of one line that names the file, the path inside it and what to do.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal, TypeVar, cast

import msgspec

from placer.errors import BadInputError, PlacerError
from placer.graph import Edge, Op, OpGraph
from placer.topology import Device, Link, Topology

GRAPH_FORMAT = "placer.graph/1"
TOPOLOGY_FORMAT = "placer.topology/1"

# Bytes and seconds may be written as 0 or as 0.0.
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Index = Annotated[int, msgspec.Meta(ge=0)]


class Document(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A JSON object of which every field is known."""


class OpEntry(Document):
    """One element of `ops`."""

    name: str
    cost_s: dict[str, NotNegative]
    memory_bytes: NotNegative
    type: str = ""
    colocate: str | None = None
    devices: list[str] | None = None
    phase: Literal["forward", "backward", "update"] | None = None


class EdgeEntry(msgspec.Struct, array_like=True, forbid_unknown_fields=True, omit_defaults=True):
    """One element of `edges`: [src, dst, bytes] or [src, dst, bytes, output_index]."""

    src: str
    dst: str
    edge_bytes: NotNegative
    output_index: Index = 0


class GraphFile(Document):
    """placer.graph/1."""

    format: Annotated[str, msgspec.Meta(description=GRAPH_FORMAT)]
    name: str
    ops: list[OpEntry]
    edges: list[EdgeEntry]
    source: str | None = None


class DeviceEntry(Document):
    """One element of `devices`."""

    name: str
    kind: str
    memory_bytes: NotNegative | None = None
    speed: Positive = 1.0
    ingress_bytes_per_s: Positive | None = None
    egress_bytes_per_s: Positive | None = None


class LinkEntry(Document):
    """One element of `links`."""

    src: str
    dst: str
    latency_s: NotNegative
    bandwidth_bytes_per_s: Positive
    send_s: NotNegative = 0.0
    send_s_per_byte: NotNegative = 0.0
    receive_s: NotNegative = 0.0
    receive_s_per_byte: NotNegative = 0.0


class TopologyFile(Document):
    """placer.topology/1."""

    format: str
    devices: list[DeviceEntry]
    links: list[LinkEntry] = []
    contention: Literal["none", "link", "port"] = "none"


class _Header(msgspec.Struct):
    """What tells one kind of file from another."""

    format: str


D = TypeVar("D", bound=Document)


def read_graph(path: str | Path) -> OpGraph:
    """The graph in a placer.graph/1 file. Raises BadInputError."""
    file = read_document(path, GraphFile, GRAPH_FORMAT)
    known = {op.name: i for i, op in enumerate(file.ops)}
    for i, edge in enumerate(file.edges):
        for end in (edge.src, edge.dst):
            if end not in known:
                raise BadInputError(
                    f"{path}: $.edges[{i}] names {end!r}, which is none of $.ops; add it or correct it."
                )
    ops = tuple(_op(entry) for entry in file.ops)
    edges = tuple(Edge(known[e.src], known[e.dst], _whole(e.edge_bytes), e.output_index) for e in file.edges)
    try:
        return OpGraph(file.name, ops, edges, file.source)
    except BadInputError as error:
        raise BadInputError(f"{path}: {error}") from None


def write_graph(path: str | Path, graph: OpGraph) -> None:
    """`graph` as placer.graph/1. Raises PlacerError where it cannot be written."""
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
    """The topology in a placer.topology/1 file. Raises BadInputError."""
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
        return Topology(devices, links, file.contention)
    except BadInputError as error:
        raise BadInputError(f"{path}: {error}") from None


def write_topology(path: str | Path, topology: Topology) -> None:
    """`topology` as placer.topology/1. Raises PlacerError where it cannot be written."""
    devices = [msgspec.convert(device, DeviceEntry, from_attributes=True) for device in topology.devices]
    links = [msgspec.convert(link, LinkEntry, from_attributes=True) for link in topology.links]
    contention = cast(Literal["none", "link", "port"], topology.contention)
    write_document(path, TopologyFile(TOPOLOGY_FORMAT, devices, links, contention))


def read_document(path: str | Path, kind: type[D], format: str) -> D:
    """The JSON file at `path`, of `format` and with the fields of `kind`. Raises BadInputError."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read ({error.strerror}); check the path.") from None
    try:
        found = msgspec.json.decode(data, type=_Header).format
        if found != format:
            raise BadInputError(f"{path}: $.format is {found!r}; this needs a {format!r} file.")
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise BadInputError(f"{path}: {_said(str(error))} (format {format}).") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInputError(f"{path}: not JSON ({error}); NaN and Infinity are not JSON either.") from None


def write_document(path: str | Path, document: Document) -> None:
    """Write `document` as JSON, whole or not at all. Raises PlacerError where that fails."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


def write_whole(path: str | Path, content: bytes) -> None:
    """Write `content`, whole or not at all. Raises PlacerError where that fails."""
    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        try:
            with part.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise PlacerError(f"{path}: cannot be written ({error.strerror}); nothing was changed there.") from None


def _op(entry: OpEntry) -> Op:
    return Op(
        name=entry.name,
        type=entry.type,
        cost_s=entry.cost_s,
        memory_bytes=_whole(entry.memory_bytes),
        colocate=entry.colocate,
        devices=None if entry.devices is None else tuple(entry.devices),
        phase=entry.phase,
    )


def _whole(number: float) -> int:
    """Bytes as an int; a fraction, as averaged profiles have it, is kept."""
    return int(number) if number.is_integer() else cast(int, number)


def _said(complaint: str) -> str:
    """What msgspec found wrong, its path first, and the way out."""
    what, _, where = complaint.partition(" - at ")
    path = where.strip("`") or ("$.edges" if "array" in what else "$")
    if field := re.search(r"unknown field `(.*)`", what):
        return f"{path} has the unknown field {field[1]!r}; remove it"
    if field := re.search(r"missing required field `(.*)`", what):
        return f"{path} lacks the field {field[1]!r}; add it"
    return f"{path}: {what[:1].lower()}{what[1:].replace('`', '')}; correct it"
