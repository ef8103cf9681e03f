"""A mapping that the user gave, as a file or a `Mapping`, for the step that was captured."""

from __future__ import annotations

from pathlib import Path

from placer.errors import BadInputError
from placer.graph.held_memory import lack_in_order
from placer.graph.mapping import Mapping
from placer.graph.mapping_files import assignment_for, read_placed
from placer.graph.op_graph import OpGraph
from placer.graph.topology import Topology
from placer.train.steps.modes import Wanted

GIVEN = "given"  # name of the proposer of a given mapping


def given(
    mapping: str | Path | Mapping, graph: OpGraph, topology: Topology, plan: int, *, match_by_name: bool, limited: bool
) -> Wanted:
    """Return what to build of the captured `graph`, divided by plan number `plan`; a `Mapping` has no run order.

    match_by_name: as for `read_placed`. limited: whether the user limited the devices' memory. Raises BadInputError if
    the mapping does not fit the graph, the devices, or these limits.
    """
    order: tuple[str, ...] = ()
    if isinstance(mapping, Mapping):
        made_for = mapping.graph.fingerprint
        assignment = assignment_for(
            "the mapping given", mapping.assignment, made_for, graph, topology, match_by_name=match_by_name
        )
        found = Mapping.of(graph, topology, assignment)
    else:
        found, order = read_placed(mapping, graph, topology, match_by_name)
    lack = lack_in_order(graph, topology, found.devices) if limited else None
    if lack is not None:
        raise BadInputError(f"the mapping given needs more than max_memory allows: {lack}, as estimated.")
    return Wanted(found.devices, order, GIVEN, plan)
