"""The content of a mapping file, and the differences between two. TensorFlow is never loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping as MappingABC
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from experiments.jobs.search_folder import GRAPH, GROUPS, MAPPING, TOPOLOGY
from placer.errors import BadInputError
from placer.graph.graph_files import read_graph, read_topology
from placer.graph.mapping import Mapping
from placer.graph.mapping_files import MappingFile, read_mapping_file, read_placed

Facts = dict[str, Any]
MOST_SCOPES = 12  # that a comparison names
GRADIENT = "gradient_tape"  # the outermost scope of ops that a tape made


def shown(path: Path, graph: Path | None = None, topology: Path | None = None) -> Facts:
    """The facts that `placer show --json` prints about a mapping file, or the folder that `placer search --out` wrote.

    With a graph and a topology, the mapping is checked against them; a folder has both, for the groups that its search
    moved. Raises BadInputError if the mapping does not fit, and for bad files.
    """
    if (graph is None) != (topology is None):
        raise BadInputError("a mapping is checked against a graph and a topology: give --graph and --topology.")
    placed = path
    if path.is_dir():
        placed = path / GROUPS if graph is None else path / MAPPING
        graph, topology, path = graph or path / GRAPH, topology or path / TOPOLOGY, path / MAPPING
    file = read_mapping_file(path)
    ops = Counter(file.assignment.values())
    facts = {**file_facts(file), "checked": graph is not None}
    if graph is None or topology is None:
        return {**facts, "devices": {name: {"ops": n} for name, n in ops.items()}, "crossing": None}
    mapping, _ = read_placed(placed, read_graph(graph), read_topology(topology))
    return {**facts, "devices": _devices(mapping, ops), "crossing": _crossing(mapping)}


def file_facts(file: MappingFile) -> Facts:
    """All facts of a file except the devices of ops. Times are seconds; None if the file does not say."""
    best_single_s = file.baseline.get("best_single")
    return {
        "graph": None if file.graph is None else {"name": file.graph.name, "fingerprint": file.graph.fingerprint},
        "ops": len(file.assignment),
        "objective": file.objective,
        "predicted_s": file.predicted_s,
        "measured_s": file.measured_s,
        "spread_s": file.spread_s,
        "repeats": file.repeats,
        "baseline": dict(file.baseline),
        "ratio_to_best_single": best_single_s / file.measured_s if best_single_s and file.measured_s else None,
        "lower_bound_s": file.lower_bound_s,
        "searcher": file.searcher,
        "seed": file.seed,
        "versions": dict(file.versions),
        "ordered": len(file.order or ()),
        "splits": [{"way": r.way, "parts": r.parts, "ops": len(r.ops)} for r in file.splits or ()],
        "in_flight": None if file.in_flight is msgspec.UNSET else file.in_flight,
    }


def compared(one: Path, other: Path) -> Facts:
    """The facts that `placer diff --json` prints about two mapping files, or folders of searches: which ops run on
    another device in `other`, by devices and by scopes of their names. Raises BadInputError for bad files.
    """
    files = [read_mapping_file(path / MAPPING if path.is_dir() else path) for path in (one, other)]
    before, after = (file.assignment for file in files)
    common = [name for name in before if name in after]
    moved = [name for name in common if before[name] != after[name]]
    moves = Counter((before[name], after[name]) for name in moved)
    scopes = Counter((_scope(name), before[name], after[name]) for name in moved)
    sizes = Counter(_scope(name) for name in common)
    marks = [None if file.graph is None else file.graph.fingerprint for file in files]
    return {
        "one": file_facts(files[0]),
        "other": file_facts(files[1]),
        "same_graph": None if None in marks else marks[0] == marks[1],
        "same": len(common) - len(moved),
        "moved": len(moved),
        "only_one": len(before) - len(common),
        "only_other": len(after) - len(common),
        "moves": [{"src": src, "dst": dst, "ops": n} for (src, dst), n in moves.most_common()],
        "scopes": [
            {"scope": scope, "src": src, "dst": dst, "ops": n, "of": sizes[scope]}
            for (scope, src, dst), n in scopes.most_common(MOST_SCOPES)
        ],
    }


def _devices(mapping: Mapping, ops: MappingABC[str, int]) -> Facts:
    """For each device of the topology: the number of its ops, the seconds that they take as profiled (None if one was
    not profiled), and the bytes that they keep.
    """
    topology, busy_s = mapping.topology, [0.0] * len(mapping.topology)
    for op, d in zip(mapping.graph.ops, mapping.devices, strict=True):
        busy_s[d] += op.cost_on(topology.devices[d])
    return {
        name: {
            "ops": ops.get(name, 0),
            "busy_s": busy_s[d] if busy_s[d] < inf else None,
            "memory_bytes": mapping.memory_bytes[d],
        }
        for d, name in enumerate(topology.names)
    }


def _crossing(mapping: Mapping) -> list[Facts]:
    """Tensors that cross from one device to another; each crosses once, even if several ops there take it."""
    graph, names, devices = mapping.graph, mapping.topology.names, mapping.devices
    sent = {
        (devices[edge.src], devices[edge.dst], edge.src, edge.output_index): graph.tensor_bytes[
            edge.src, edge.output_index
        ]
        for edge in graph.edges
        if devices[edge.src] != devices[edge.dst]
    }
    tensors, sizes = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for (src, dst, _, _), tensor_bytes in sent.items():
        tensors[src, dst] += 1
        sizes[src, dst] += tensor_bytes
    return [
        {"src": names[src], "dst": names[dst], "tensors": n, "bytes": sizes[src, dst]}
        for (src, dst), n in sorted(tensors.items())
    ]


def _scope(name: str) -> str:
    """The layer of an op or its gradient, by TensorFlow's names (model/layer/...); "" if a name has no scope."""
    parts = name.split("/")[:-1]
    return "/".join(parts[1:3] if parts[:1] == [GRADIENT] else parts[:2])
