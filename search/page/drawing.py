"""The graph of a step's groups as a page draws it: from inputs on the left to updates on the right."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import isfinite
from statistics import fmean

from placer.graph.coarsen import Groups, coarsen
from placer.graph.op_graph import Op, OpGraph
from placer.graph.topology import Topology
from search.page.record import Edge, Node
from surrogate.simulate.timeline import Timeline

NAMES = 8  # ops of a group that are named, the most expensive first
MOST_EDGES = 1500  # only the largest are drawn
SWEEPS = 4


def drawing_of(
    graph: OpGraph, groups: Groups, topology: Topology, devices: Sequence[int]
) -> tuple[tuple[Node, ...], tuple[Edge, ...]]:
    """Nodes and edges of `graph`, the graph of `groups` with costs. devices: index into `topology` for each group."""
    unit_of = {group: unit for unit, members in enumerate(graph.colocated) for group in members}
    places = layout(graph)
    nodes = tuple(
        _node(graph.ops[group], _members(groups, group), unit_of[group], topology, devices[group], places[group])
        for group in range(len(graph))
    )
    return nodes, _edges(graph)


def drawing_of_step(timeline: Timeline, most: int) -> tuple[tuple[Node, ...], tuple[Edge, ...]]:
    """The graph of a step: its ops, or if there are more than `most`, about `most` groups. Each group is on the device
    that has most of its ops, because a mapping that was made for other groups need not keep its ops together.
    """
    graph = timeline.graph
    own = Groups(graph, graph, tuple((i,) for i in range(len(graph))))
    groups = own if len(graph) <= most else coarsen(graph, most, timeline.topology)
    devices = [
        Counter(timeline.devices[op] for op in groups.members[group]).most_common(1)[0][0]
        for group in range(len(groups.graph))
    ]
    return drawing_of(groups.graph, groups, timeline.topology, devices)


def layout(graph: OpGraph) -> list[tuple[float, float]]:
    """Return where each op is drawn, x and y from 0 to 1: x by the longest path to the op, y near its neighbours.

    An op without inputs, such as a weight, stands next to the first op that needs it.

    Layers and the barycentre heuristic of Sugiyama, Tagawa and Toda (1981).
    """
    depth = [0] * len(graph)
    for v in graph.order:
        depth[v] = max((depth[e.src] + 1 for e in graph.in_edges[v]), default=0)
    for v in graph.order:
        if graph.out_edges[v] and not graph.in_edges[v]:
            depth[v] = min(depth[e.dst] for e in graph.out_edges[v]) - 1
    layers: dict[int, list[int]] = defaultdict(list)
    for v in graph.order:
        layers[depth[v]].append(v)
    y = _ordered(graph, [layers[i] for i in sorted(layers)])
    last = max(depth) or 1
    return [(depth[v] / last, y[v]) for v in range(len(graph))]


def _ordered(graph: OpGraph, layers: Sequence[list[int]]) -> dict[int, float]:
    """The y of each op: forward and backward sweeps sort each layer by the mean y of its ops' neighbours."""
    y = {v: (i + 0.5) / len(layer) for layer in layers for i, v in enumerate(layer)}
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for layer in layers if forward else reversed(layers):
            near = {v: _mean([y[e.src] for e in graph.in_edges[v]] if forward
                             else [y[e.dst] for e in graph.out_edges[v]], y[v]) for v in layer}  # fmt: skip
            for i, v in enumerate(sorted(layer, key=near.__getitem__)):
                y[v] = (i + 0.5) / len(layer)
    return y


def _mean(values: list[float], otherwise: float) -> float:
    return fmean(values) if values else otherwise


def _members(groups: Groups, group: int) -> list[Op]:
    return [groups.fine.ops[i] for i in groups.members[group]]


def _node(op: Op, members: list[Op], unit: int, topology: Topology, device: int, place: tuple[float, float]) -> Node:
    where = topology.devices[device]
    dear = sorted(members, key=lambda member: -member.cost_on(where) if member.runs_on(where) else 0.0)
    cost_s = op.cost_on(where)
    return Node(
        op.name, unit, device, cost_s if isfinite(cost_s) else None, op.memory_bytes,
        tuple(member.name for member in dear[:NAMES]), len(members), op.phase or "", _part(members),
        round(place[0], 4), round(place[1], 4),
    )  # fmt: skip


def _part(members: Sequence[Op]) -> str:
    """Say which parts of divided ops are among `members`, and which micro-batches they work on; "" for none."""
    parts = sorted({op.part for op in members if op.part is not None})
    batches = sorted({op.micro_batch for op in members if op.micro_batch is not None})
    said = [f"{what} {', '.join(str(n + 1) for n in found)}"
            for what, found in (("part", parts), ("micro-batch", batches)) if found]  # fmt: skip
    return "; ".join(said)


def _edges(graph: OpGraph) -> tuple[Edge, ...]:
    """One edge for each pair of groups, with the bytes of their distinct tensors; the largest MOST_EDGES of them."""
    tensors: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for e in graph.edges:
        tensors[e.src, e.dst][e.output_index] = e.edge_bytes
    edges = [Edge(*ends, sum(sizes.values())) for ends, sizes in tensors.items()]
    return tuple(sorted(edges, key=lambda edge: -edge.edge_bytes)[:MOST_EDGES])
