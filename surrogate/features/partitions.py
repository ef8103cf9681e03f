"""The partition of each device under a mapping, the tensors that cross between devices, and the longest path.

Compiled, because a genetic algorithm asks about thousands of mappings. One pass over the ops in topological order
computes all numbers. Importing this file imports numba.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surrogate.jit import inner, jit, kernel
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
    """The weights of ops other than their costs. order: a topological order. memory_bytes, operations: [ops]."""

    order: Ints
    memory_bytes: Floats
    operations: Floats


class Pass(NamedTuple):
    """The results per op, [ops], known once its producers were visited. A chain consists of ops on one device."""

    ready_s: Floats  # when the op can start if no op waits for a device
    crossings: Floats  # the most crossings on any path to the op
    chain_ops: Floats  # the number of ops on the longest chain that ends with the op
    chain_s: Floats  # the seconds of the heaviest such chain
    seen: Ints  # [tensors * devices] the last row in which a tensor was on a device


@jit
def measure(tables: Tables, weights: Weights, rows: Ints, parts: Floats, whole: Floats) -> None:
    """Fill parts[i], [PARTS, devices], and whole[i], [WHOLE], for rows[i]; every device must exist.

    Both are zero at the start.
    """
    ops, devices = tables.cost_s.shape
    seen = np.full(max(tables.tensors, 1) * devices, -1, np.int32)
    known = Pass(np.empty(ops), np.empty(ops), np.empty(ops), np.empty(ops), seen)
    _measure(tables, weights, known, rows, parts, whole)


@kernel
def _measure(tables: Tables, weights: Weights, known: Pass, rows: Ints, parts: Floats, whole: Floats) -> None:
    for row in range(len(rows)):
        share, total, placed = parts[row], whole[row], rows[row]
        known.ready_s[:], known.crossings[:], known.chain_ops[:], known.chain_s[:] = 0.0, 0.0, 0.0, 0.0
        for op in weights.order:
            device = placed[op]
            end_s = _work(tables, weights, known, op, device, share, total)
            for need in range(tables.start[op], tables.start[op + 1]):
                user = tables.dst[need]
                there = placed[user]
                if _is_new(known, row, tables.tensor[need] * share.shape[1] + device):
                    share[HELD, device] += tables.tensor_bytes[need]
                if there == device:
                    known.ready_s[user] = max(known.ready_s[user], end_s)
                    known.crossings[user] = max(known.crossings[user], known.crossings[op])
                    known.chain_ops[user] = max(known.chain_ops[user], known.chain_ops[op])
                    known.chain_s[user] = max(known.chain_s[user], known.chain_s[op])
                else:
                    arrives_s = _cross(tables, known, row, need, device, there, end_s, share, total)
                    known.ready_s[user] = max(known.ready_s[user], arrives_s)
                    known.crossings[user] = max(known.crossings[user], known.crossings[op] + 1)


@inner
def _work(tables: Tables, weights: Weights, known: Pass, op: int, device: int, share: Floats, total: Floats) -> float:
    """Count the op on its device, and on the paths and chains that lead to it. Return the second when it ends."""
    cost_s, memory_bytes = tables.cost_s[op, device], weights.memory_bytes[op]
    share[OPS, device] += 1
    share[BUSY, device] += cost_s
    share[MEMORY, device] += memory_bytes
    share[HELD, device] += memory_bytes
    share[OPERATIONS, device] += weights.operations[op]
    known.chain_ops[op] += 1
    known.chain_s[op] += cost_s
    share[CHAIN_OPS, device] = max(share[CHAIN_OPS, device], known.chain_ops[op])
    share[CHAIN_S, device] = max(share[CHAIN_S, device], known.chain_s[op])
    end_s = known.ready_s[op] + cost_s
    total[PATH] = max(total[PATH], end_s)
    total[PATH_CROSSINGS] = max(total[PATH_CROSSINGS], known.crossings[op])
    return end_s  # type: ignore[no-any-return]


@inner
def _is_new(known: Pass, row: int, place: int) -> bool:
    """Note that a tensor is on a device in this row; return whether that is new. place: their index in `seen`."""
    if known.seen[place] == row:
        return False
    known.seen[place] = row
    return True


@inner
def _cross(
    tables: Tables,
    known: Pass,
    row: int,
    need: int,
    device: int,
    there: int,
    end_s: float,
    share: Floats,
    total: Floats,
) -> float:
    """Count the crossing, once for all ops that need the tensor there. Return when it arrives if sent at end_s."""
    size = tables.tensor_bytes[need]
    send_s, way_s, receive_s = transfer_s(tables.link, device, there, size)
    if _is_new(known, row, tables.tensor[need] * share.shape[1] + there):
        share[HELD, there] += size
        share[BUSY, device] += send_s
        share[BUSY, there] += receive_s
        share[ENDS, device] += send_s
        share[ENDS, there] += receive_s
        share[BYTES_OUT, device] += size
        share[BYTES_IN, there] += size
        share[TENSORS_OUT, device] += 1
        share[TENSORS_IN, there] += 1
        total[CUT_TENSORS] += 1
        total[CUT_BYTES] += size
        total[WAY] += way_s
    return end_s + send_s + way_s + receive_s
