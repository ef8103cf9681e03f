"""The compiled max-load: the largest load of many mappings, equal to surrogate/simulate/max_load.py to the last bit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placer.graph.topology import Topology
from surrogate.costs.cost_matrix import Costs
from surrogate.jit import inlined, jit
from surrogate.simulate.kernels.arrays import Needs

# The number of devices that fit into a word.
BITS = 64


class Ends(NamedTuple):
    """All that a max-load depends on except the mapping. t: tensors in the order of their numbers, d: device."""

    cost_s: Costs  # [ops, d]
    start: NDArray[np.int32]  # [t + 1] the users of tensor t are those from start[t] to start[t + 1]
    user: NDArray[np.int32]  # [need] op index
    maker: NDArray[np.int32]  # [t] op index
    receive_s: NDArray[np.float64]  # [t, d]
    send_s: NDArray[np.float64]  # [t, d]
    first_made: NDArray[np.int32]  # [ops + 1] op v makes the tensors from first_made[v] to first_made[v + 1]
    first_used: NDArray[np.int32]  # [ops + 1] op v uses used[first_used[v]] to used[first_used[v + 1]]
    used: NDArray[np.int32]


def ends_of(needs: Needs, costs: Costs, topology: Topology) -> Ends:
    """Return the inputs of `max_loads`. costs: [ops, devices] seconds."""
    line = np.argsort(needs.tensor, kind="stable")
    start = np.searchsorted(needs.tensor[line], np.arange(needs.tensors + 1)).astype(np.int32)
    first = line[start[:-1]]
    size = needs.tensor_bytes[first][:, None]
    rates = [(device.ingress_bytes_per_s, device.egress_bytes_per_s) for device in topology.devices]
    ingress, egress = np.array([[np.inf if rate is None else rate for rate in pair] for pair in rates]).T
    costs = np.ascontiguousarray(costs, dtype=np.float64)
    first_made = np.searchsorted(needs.src[first], np.arange(len(costs) + 1)).astype(np.int32)
    return Ends(
        costs,
        start,
        needs.dst[line],
        needs.src[first],
        size / ingress,
        size / egress,
        first_made,
        needs.first_input,
        needs.tensor[needs.by_dst],
    )


@inlined
def _worked(cost_s: Costs, rows: NDArray[np.int32], row: int, load: NDArray[np.float64]) -> bool:
    """Fill load[d] with the seconds of the ops on device d; return whether all devices of the row exist."""
    load[:] = 0.0
    for v in range(cost_s.shape[0]):
        d = rows[row, v]
        if d < 0 or d >= len(load):
            return False
        load[d] += cost_s[v, d]
    return True


def max_loads(ends: Ends, rows: NDArray[np.int32], load_s: NDArray[np.float64]) -> None:
    """Fill load_s[i] with the largest load of rows[i], NaN if a device does not exist. rows: [n, ops] devices."""
    (_few if ends.cost_s.shape[1] <= BITS else _many)(ends, rows, load_s)


@jit
def _few(t: Ends, rows: NDArray[np.int32], out: NDArray[np.float64]) -> None:
    """For at most 64 devices. The devices that hold a tensor are bits of a word; loads are added without branches."""
    start, user, maker, receive_s, send_s = t.start, t.user, t.maker, t.receive_s, t.send_s
    devices = t.cost_s.shape[1]
    load, one = np.empty(devices), np.uint64(1)
    for row in range(len(rows)):
        if not _worked(t.cost_s, rows, row, load):
            out[row] = np.nan
            continue
        for k in range(len(maker)):
            at = np.uint64(0)
            for use in range(start[k], start[k + 1]):
                at |= one << np.uint64(rows[row, user[use]])
            home = np.uint64(rows[row, maker[k]])
            if at & ~(one << home):
                at |= one << home
                for d in range(devices):
                    receive, send = receive_s[k, d], send_s[k, d]
                    end_s = send if np.uint64(d) == home else receive
                    load[d] += end_s if (at >> np.uint64(d)) & one else 0.0
        out[row] = load.max()


@jit
def _many(t: Ends, rows: NDArray[np.int32], out: NDArray[np.float64]) -> None:
    """For any number of devices. A tensor reaches few, so each device is marked with the last tensor it held."""
    start, user, maker, receive_s, send_s = t.start, t.user, t.maker, t.receive_s, t.send_s
    devices = t.cost_s.shape[1]
    load, seen = np.empty(devices), np.empty(devices, np.int32)
    for row in range(len(rows)):
        if not _worked(t.cost_s, rows, row, load):
            out[row] = np.nan
            continue
        seen[:] = -1
        for k in range(len(maker)):
            home = rows[row, maker[k]]
            seen[home] = k
            crosses = False
            for use in range(start[k], start[k + 1]):
                d = rows[row, user[use]]
                if seen[d] != k:
                    seen[d] = k
                    crosses = True
                    load[d] += receive_s[k, d]
            if crosses:
                load[home] += send_s[k, home]
        out[row] = load.max()
