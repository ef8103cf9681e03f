"""The file edge: graphs and topologies as JSON, checked at the door.

Bad input is a BadInputError of one line that names the file, the path inside it and what to do.
"""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec

from placer.errors import BadInputError, PlacerError, short
from placer.graph import Edge, Op, OpGraph
from placer.topology import Device, Link, Topology

GRAPH_FORMAT = "placer.graph/1"
TOPOLOGY_FORMAT = "placer.topology/1"

LARGEST_FILE_BYTES = 128 << 20  # a graph of some 400,000 ops
# Names are echoed in tables and error lines.
Name = Annotated[str, msgspec.Meta(max_length=1000)]
Text = Annotated[str, msgspec.Meta(max_length=100_000)]
# Bytes and seconds may be written as 0 or as 0.0. No real one reaches these bounds, and within them all stays finite.
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Bytes = Annotated[float, msgspec.Meta(ge=0, le=1e18)]
Rate = Annotated[float, msgspec.Meta(ge=1e-9)]
Index = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]


class Document(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A JSON object of which every field is known."""


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


class TopologyFile(Document):
    """placer.topology/1."""

    format: str
    devices: Annotated[list[DeviceEntry], msgspec.Meta(max_length=1000)]
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
                    f"{path}: $.edges[{i}] names {short(end)}, which is none of $.ops; add it or correct it."
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
    data = _read(path, format)
    try:
        found = msgspec.json.decode(data, type=_Header).format
        if found != format:
            raise BadInputError(f"{path}: $.format is {short(found)}; this needs a {format!r} file.")
        document = msgspec.json.decode(data, type=kind)
        json.loads(data, object_pairs_hook=_refuse_twins)
        return document
    except _TwinsError as error:
        raise BadInputError(f"{path}: an object has the key {short(str(error))} twice; keep one of them.") from None
    except msgspec.ValidationError as error:
        raise BadInputError(f"{path}: {_said(str(error))} (format {format}).") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInputError(f"{path}: not JSON ({error}); NaN and Infinity are not JSON either.") from None


class _TwinsError(ValueError):
    """An object has this key twice."""


def _refuse_twins(pairs: list[tuple[str, Any]]) -> None:
    """JSON leaves open which of two values counts, and readers differ."""
    if len({key for key, _ in pairs}) != len(pairs):
        seen: set[str] = set()
        raise _TwinsError(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]


def _read(path: str | Path, format: str) -> bytes:
    """The whole file. A pipe is refused, for nobody may ever write into it."""
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            raise BadInputError(f"{path}: is no file; give the path of a {format} file.")
        if status.st_size > LARGEST_FILE_BYTES:
            held, most = (f"{count / 2**20:,.0f} MiB" for count in (status.st_size, LARGEST_FILE_BYTES))
            raise BadInputError(f"{path}: has {held}, and {most} is the most that is read; is it a {format} file?")
        data = Path(path).read_bytes()
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read ({error.strerror}); check the path.") from None
    if not data.strip():
        raise BadInputError(f"{path}: is empty; give the path of a {format} file.")
    return data


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
    what, _, where = complaint.rpartition(" - at ") if " - at " in complaint else (complaint, "", "")
    path = where.replace("`", "") or ("$.edges" if "length" in what else "$")
    if field := re.search(r"unknown field `(.*)`", what, re.DOTALL):
        return f"{path} has the unknown field {short(field[1])}; remove it"
    if field := re.search(r"missing required field `(.*)`", what):
        return f"{path} lacks the field {field[1]!r}; add it"
    if value := re.search(r"[Ii]nvalid enum value '(.*)'", what, re.DOTALL):
        return f"{path}: {short(value[1])} is none of the values it may have; correct it"
    return f"{path}: {what[:1].lower()}{what[1:].replace('`', '')}; correct it"
