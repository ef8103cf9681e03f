"""What each op costs on each device, as a matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.graph import OpGraph
from placer.topology import Topology

Costs = NDArray[np.float64]


def cost_matrix(graph: OpGraph, topology: Topology) -> Costs:
    """`cost_s[v, d]`: seconds op v takes on device d, shape [ops, devices]; infinity where it cannot run.

    Raises BadInputError for an op that no device of the topology can run.
    """
    costs = np.array([[op.cost_on(d) for d in topology.devices] for op in graph.ops], dtype=np.float64)
    nowhere = np.isinf(costs).all(axis=1)
    if nowhere.any():
        op = graph.ops[int(nowhere.argmax())]
        given = ", ".join(sorted(op.cost_s)) or "no device"
        allowed = "" if op.devices is None else f" and may run on {', '.join(op.devices) or 'no device'}"
        raise BadInputError(
            f"graph {graph.name!r}: op {op.name!r} ({op.type}) can run on none of "
            f"{', '.join(topology.names)}: it has a cost on {given}{allowed}. "
            "Give it a cost_s for one of these devices or kinds."
        )
    return costs
