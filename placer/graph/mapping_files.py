"""Mappings as placer.mapping/1 and /2 files: what was chosen for which graph, predicted and measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from placer.errors import BadInputError, first_twice, listed, plain, short
from placer.files import Document, Name, read_document, write_document
from placer.graph.mapping import Mapping
from placer.graph.op_graph import Op, OpGraph
from placer.graph.topology import Device, Topology

MAPPING_FORMAT = "placer.mapping/1"
SPLIT_FORMAT = "placer.mapping/2"  # of a step whose ops are divided
Count = Annotated[int, msgspec.Meta(ge=1)]


class GraphMark(Document):
    """The graph that a mapping is for."""

    name: Name
    fingerprint: Annotated[str, msgspec.Meta(max_length=64)]


class SplitRegion(Document, omit_defaults=False):
    """Ops that are divided in the same way: along the factor `way`, into `parts` parts."""

    way: Name
    parts: int
    ops: list[Name]


class MappingFile(Document, kw_only=True, omit_defaults=False):
    """placer.mapping/1, or /2 with `splits`: then graph and assignment are those of the divided step.

    Times are seconds; None if unknown. Reading needs only format and assignment.
    """

    format: str
    graph: GraphMark | None = None
    assignment: dict[Name, Name]
    objective: Name | None = None  # makespan or max-load: the meaning of predicted_s and lower_bound_s
    predicted_s: float | None = None
    measured_s: float | None = None
    spread_s: float | None = None  # interquartile range of measured_s over `repeats` steps
    repeats: int | None = None
    baseline: dict[Name, float | None] = msgspec.field(default_factory=dict)  # seconds, by name
    lower_bound_s: float | None = None
    seed: int | None = None
    searcher: Name | None = None
    versions: dict[Name, Name] = msgspec.field(default_factory=dict)
    splits: list[SplitRegion] | msgspec.UnsetType = msgspec.UNSET
    in_flight: Count | msgspec.UnsetType = msgspec.UNSET  # parts are micro-batches, at most this many under way
    order: list[Name] | msgspec.UnsetType = msgspec.UNSET  # ops that run in this order if they share a device


def mapping_file(
    mapping: Mapping,
    *,
    objective: str,
    predicted_s: float | None = None,
    measured_s: float | None = None,
    spread_s: float | None = None,
    repeats: int | None = None,
    baseline: dict[str, float | None] | None = None,
    lower_bound_s: float | None = None,
    seed: int | None = None,
    searcher: str | None = None,
    versions: dict[str, str] | None = None,
    splits: list[SplitRegion] | None = None,
    in_flight: int | None = None,
    order: Sequence[str] = (),
) -> MappingFile:
    """The MappingFile that describes `mapping`. order: as in MappingFile; other ops run in TensorFlow's own order."""
    return MappingFile(
        format=SPLIT_FORMAT if splits else MAPPING_FORMAT,
        graph=GraphMark(mapping.graph.name, mapping.graph.fingerprint),
        assignment=mapping.assignment,
        objective=objective,
        predicted_s=predicted_s,
        measured_s=measured_s,
        spread_s=spread_s,
        repeats=repeats,
        baseline=baseline or {},
        lower_bound_s=lower_bound_s,
        seed=seed,
        searcher=searcher,
        versions=versions or {},
        splits=splits or msgspec.UNSET,
        in_flight=in_flight or msgspec.UNSET,
        order=list(order) or msgspec.UNSET,
    )


def write_mapping(path: str | Path, file: MappingFile) -> None:
    """Write `file` atomically. Raises PlacerError if it cannot be written."""
    write_document(path, file)


def read_mapping_file(path: str | Path) -> MappingFile:
    """All fields of a mapping file, not yet checked against any graph. Raises BadInputError."""
    file = read_document(path, MappingFile, MAPPING_FORMAT, SPLIT_FORMAT)
    if file.splits and file.format != SPLIT_FORMAT:
        raise BadInputError(f"{path}: $.splits needs the format {SPLIT_FORMAT!r}; change $.format.")
    if file.in_flight is not msgspec.UNSET and not file.splits:
        raise BadInputError(f"{path}: $.in_flight is of micro-batches, but $.splits divides no op; remove it.")
    return file


def read_mapping(path: str | Path, graph: OpGraph, topology: Topology, match_by_name: bool = False) -> Mapping:
    """Read a mapping file like `read_placed`, but return only the mapping."""
    return read_placed(path, graph, topology, match_by_name)[0]


def read_placed(
    path: str | Path, graph: OpGraph, topology: Topology, match_by_name: bool = False
) -> tuple[Mapping, tuple[str, ...]]:
    """Read the mapping in a mapping file, for `graph` on `topology`, and its run order, which is empty if the file has
    none.

    A mapping made for another graph is refused with both fingerprints named. With match_by_name it is carried over by
    op name, without its order, and ops that it does not name follow their neighbours. Raises BadInputError.
    """
    file = read_mapping_file(path)
    made_for = None if file.graph is None else file.graph.fingerprint
    assignment = assignment_for(path, file.assignment, made_for, graph, topology, match_by_name=match_by_name)
    try:
        mapping = Mapping.of(graph, topology, assignment)
    except BadInputError as error:
        raise BadInputError(f"{path}: $.assignment: {error}") from None
    order = () if match_by_name else tuple(file.order or ())
    _check_order(f"{path}: $.order", order, graph)
    return mapping, order


def assignment_for(
    source: str | Path,
    assignment: dict[str, str],
    made_for: str | None,
    graph: OpGraph,
    topology: Topology,
    *,
    match_by_name: bool,
) -> dict[str, str]:
    """{op name: device name} for `graph`. made_for: the fingerprint of the graph that `assignment` is for; None =
    unknown.

    With match_by_name, an assignment for another graph is carried over. Without it, such an assignment raises
    BadInputError; the message begins with `source`.
    """
    if match_by_name:
        return carried_over(source, assignment, graph, topology)
    if made_for is not None and made_for != graph.fingerprint:
        theirs, ours = _distinct_prefixes(made_for, graph.fingerprint)
        raise BadInputError(
            f"{source} was made for graph {plain(theirs)} ({len(assignment)} ops); "
            f"this model is {ours} ({len(graph)}). Run placer search again, or match ops by name "
            "(placer simulate --match-by-name, placer.place with match_by_name=True)."
        )
    return assignment


def _check_order(where: str, order: Sequence[str], graph: OpGraph) -> None:
    """Raises BadInputError if `order` names an op that the graph does not have, names an op twice, or has an op before
    another op that it needs, because a step would then wait forever. where: the beginning of the message.
    """
    place = {name: i for i, name in enumerate(order)}
    twice = first_twice(order)
    if twice is not None:
        raise BadInputError(f"{where} names op {short(twice)} twice; remove one, or leave out $.order.")
    unknown = [name for name in order if name not in graph.index]
    if unknown:
        raise BadInputError(f"{where} names op {short(unknown[0])}, which the graph does not have; remove it.")
    latest = [-1] * len(graph)  # for each op, the last position in `order` of an op that it needs
    for v in graph.order:
        name = graph.ops[v].name
        mine = place.get(name)
        if mine is not None and mine < latest[v]:
            raise BadInputError(
                f"{where} has op {short(name)} before {short(order[latest[v]])}, which it needs; swap them, or leave "
                "out $.order."
            )
        for edge in graph.out_edges[v]:
            latest[edge.dst] = max(latest[edge.dst], latest[v] if mine is None else mine)


def _distinct_prefixes(a: str, b: str) -> tuple[str, str]:
    """The shortest prefixes of two fingerprints that differ, at least four digits."""
    length = next((n for n in range(4, max(len(a), len(b))) if a[:n] != b[:n]), None)
    return a[:length], b[:length]


def carried_over(path: str | Path, assignment: dict[str, str], graph: OpGraph, topology: Topology) -> dict[str, str]:
    """Op name -> device. A unit takes its first known op's device, else a neighbour's, else the cheapest."""
    if not assignment.keys() & graph.index.keys():
        raise BadInputError(f"{path}: $.assignment has no op of graph {short(graph.name)}; run placer search again.")
    unit_of = {v: unit for unit in graph.colocated for v in unit}
    device: dict[int, str] = {}
    for unit in graph.colocated:
        known = next((assignment[graph.ops[v].name] for v in unit if graph.ops[v].name in assignment), None)
        if known is not None:
            device.update(dict.fromkeys(unit, known))
    for v in graph.order:
        if v not in device:
            device.update(dict.fromkeys(unit_of[v], _device_for(unit_of[v], device, graph, topology)))
    return {op.name: device[v] for v, op in enumerate(graph.ops)}


def _device_for(unit: tuple[int, ...], device: dict[int, str], graph: OpGraph, topology: Topology) -> str:
    """The device for an unknown unit, among those that can run it: the one with which it exchanges most bytes, then the
    cheapest.
    """
    can = [d for d in topology.devices if all(graph.ops[v].runs_on(d) for v in unit)]
    if not can:
        raise BadInputError(f"op {short(graph.ops[unit[0]].name)} can run on none of {listed(topology.names)}.")
    shared = dict.fromkeys(topology.names, 0.0)
    for v in unit:
        for e in (*graph.in_edges[v], *graph.out_edges[v]):
            at = device.get(e.src if e.dst == v else e.dst)
            if at in shared:
                shared[at] += e.edge_bytes + 1
    return min(can, key=lambda d: (-shared[d.name], sum(_cost_s(graph.ops[v], d) for v in unit))).name


def _cost_s(op: Op, device: Device) -> float:
    return op.cost_on(device) if op.cost_s else 0.0  # captured but not profiled
