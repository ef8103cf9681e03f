"""The compiled max-load: the largest load of many mappings, equal to surrogate/maxload.py to the last bit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placer.topology import Topology
from surrogate.costs import Costs
from surrogate.jit import jit
from surrogate.tables import Needs


class Ends(NamedTuple):
    """All that a max-load depends on but the mapping. Tensors t in the order of their numbers."""

    cost_s: Costs  # [ops, d]
    start: NDArray[np.int32]  # [t + 1] the users of tensor t are those from start[t] to start[t + 1]
    user: NDArray[np.int32]  # [need] op index
    maker: NDArray[np.int32]  # [t] op index
    tensor_bytes: NDArray[np.float64]  # [t]
    ingress_bytes_per_s: NDArray[np.float64]  # [d] infinite where free
    egress_bytes_per_s: NDArray[np.float64]  # [d]


def ends_of(needs: Needs, costs: Costs, topology: Topology) -> Ends:
    """costs: [ops, devices] seconds."""
    line = np.argsort(needs.tensor, kind="stable")
    start = np.searchsorted(needs.tensor[line], np.arange(needs.tensors + 1)).astype(np.int32)
    first = line[start[:-1]]
    rates = [(device.ingress_bytes_per_s, device.egress_bytes_per_s) for device in topology.devices]
    ingress, egress = np.array([[np.inf if rate is None else rate for rate in pair] for pair in rates]).T.copy()
    return Ends(
        np.ascontiguousarray(costs, dtype=np.float64),
        start,
        needs.dst[line],
        needs.src[first],
        needs.tensor_bytes[first],
        ingress,
        egress,
    )


@jit
def max_loads(t: Ends, placements: NDArray[np.int32], out: NDArray[np.float64]) -> None:
    """Fill out[i] with the largest load of placements[i], [n, ops] devices; NaN where a device does not exist."""
    cost_s, start, user, maker, size = t.cost_s, t.start, t.user, t.maker, t.tensor_bytes
    ingress, egress = t.ingress_bytes_per_s, t.egress_bytes_per_s
    ops, devices = cost_s.shape
    load, seen = np.empty(devices), np.empty(devices, np.int32)
    for row in range(len(placements)):
        load[:] = 0.0
        seen[:] = -1
        for v in range(ops):
            d = placements[row, v]
            if d < 0 or d >= devices:
                load[0] = np.nan
                break
            load[d] += cost_s[v, d]
        if np.isnan(load[0]):
            out[row] = np.nan
            continue
        for k in range(len(maker)):
            home = placements[row, maker[k]]
            seen[home] = k
            crosses = False
            for use in range(start[k], start[k + 1]):
                d = placements[row, user[use]]
                if seen[d] != k:
                    seen[d] = k
                    crosses = True
                    load[d] += size[k] / ingress[d]
            if crosses:
                load[home] += size[k] / egress[home]
        out[row] = load.max()
