"""What a mapping makes of a graph: each device's partition, what crosses between them, and the longest way through.

Compiled, because a genetic algorithm asks about thousands of mappings. One pass over the ops in topological order
finds it all; numba, which it needs, is imported with this file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surrogate.jit import jit
from surrogate.simulate.kernels.arrays import Tables
from surrogate.simulate.kernels.transfer import transfer_s

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

# The second axis of `parts`.
OPS, BUSY, ENDS, BYTES_IN, BYTES_OUT, TENSORS_IN, TENSORS_OUT, MEMORY, HELD, OPERATIONS, CHAIN_OPS, CHAIN_S = range(12)
PARTS = 12
# The second axis of `whole`.
PATH, PATH_CROSSINGS, CUT_TENSORS, CUT_BYTES, WAY = range(5)
WHOLE = 5


class Weights(NamedTuple):
    """What each op weighs beside its cost. order: a topological order. memory_bytes, operations: [ops]."""

    order: Ints
    memory_bytes: Floats
    operations: Floats


@jit
def measure(t: Tables, weights: Weights, placements: Ints, parts: Floats, whole: Floats) -> None:
    """Fill parts[i], [PARTS, devices], and whole[i], [WHOLE], for placements[i]; every device must exist.

    Both are zero at the start.
    """
    start, dst, tensor, size, cost_s, link = t.start, t.dst, t.tensor, t.tensor_bytes, t.cost_s, t.link
    order, memory_bytes, operations = weights.order, weights.memory_bytes, weights.operations
    n, devices = cost_s.shape
    seen = np.full(max(t.tensors, 1) * devices, -1, np.int32)  # the last row in which a tensor was on a device
    at_s, hops, chain, chain_s = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for row in range(len(placements)):
        part, total, device = parts[row], whole[row], placements[row]
        at_s[:], hops[:], chain[:], chain_s[:] = 0.0, 0.0, 0.0, 0.0
        for v in order:
            d = device[v]
            part[OPS, d] += 1
            part[BUSY, d] += cost_s[v, d]
            part[MEMORY, d] += memory_bytes[v]
            part[HELD, d] += memory_bytes[v]
            part[OPERATIONS, d] += operations[v]
            chain[v] += 1
            chain_s[v] += cost_s[v, d]
            part[CHAIN_OPS, d] = max(part[CHAIN_OPS, d], chain[v])
            part[CHAIN_S, d] = max(part[CHAIN_S, d], chain_s[v])
            end_s = at_s[v] + cost_s[v, d]
            total[PATH] = max(total[PATH], end_s)
            total[PATH_CROSSINGS] = max(total[PATH_CROSSINGS], hops[v])
            for k in range(start[v], start[v + 1]):
                u, home = dst[k], tensor[k] * devices
                if seen[home + d] != row:
                    seen[home + d] = row
                    part[HELD, d] += size[k]
                e = device[u]
                if e == d:
                    at_s[u], hops[u] = max(at_s[u], end_s), max(hops[u], hops[v])
                    chain[u], chain_s[u] = max(chain[u], chain[v]), max(chain_s[u], chain_s[v])
                    continue
                send_s, way_s, receive_s = transfer_s(link, d, e, size[k])
                at_s[u] = max(at_s[u], end_s + send_s + way_s + receive_s)
                hops[u] = max(hops[u], hops[v] + 1)
                if seen[home + e] == row:
                    continue
                seen[home + e] = row
                part[HELD, e] += size[k]
                part[BUSY, d] += send_s
                part[BUSY, e] += receive_s
                part[ENDS, d] += send_s
                part[ENDS, e] += receive_s
                part[BYTES_OUT, d] += size[k]
                part[BYTES_IN, e] += size[k]
                part[TENSORS_OUT, d] += 1
                part[TENSORS_IN, e] += 1
                total[CUT_TENSORS] += 1
                total[CUT_BYTES] += size[k]
                total[WAY] += way_s
