"""The fixed-order fast path: a quick estimate of the makespans of many mappings.

Ops are taken in one order, whatever the mapping: by rank, or by their earliest start, producers first. An op starts
when its device is free and its tensors have arrived. The estimate differs from the simulator in three ways. A device
waits for the next op in line even if other ops could run. Links have no queues. The work of sending and receiving is
part of a crossing's time, once per consumer, and does not keep the two devices busy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surrogate.jit import jit
from surrogate.simulate.kernels.arrays import BANDWIDTH, LATENCY, RECEIVE, RECEIVE_PER_BYTE, SEND, SEND_PER_BYTE, Tables


class Line(NamedTuple):
    """The tables in the order in which ops are taken, so that memory is read in one direction. i: position."""

    op: NDArray[np.int32]  # [i] op index
    cost_s: NDArray[np.float64]  # [i, d]
    start: NDArray[np.int32]  # [i + 1] the inputs of the op at i are those from start[i] to start[i + 1]
    producer: NDArray[np.int32]  # [input] position
    tensor_bytes: NDArray[np.float64]  # [input]
    way_s: NDArray[np.float64]  # [src, dst] seconds of a crossing, whatever its bytes
    way_s_per_byte: NDArray[np.float64]  # [src, dst]


def line_up(t: Tables, order: NDArray[np.int32]) -> Line:
    """Return the tables in `order`, a topological order of op indices."""
    n = len(order)
    at = np.empty(n, np.int32)
    at[order] = np.arange(n, dtype=np.int32)
    consumer = at[t.dst[t.by_dst]]
    by_position = t.by_dst[np.argsort(consumer, kind="stable")]
    start = np.zeros(n + 1, np.int32)
    np.cumsum(t.inputs[order], out=start[1:])
    way_s = t.link[LATENCY] + t.link[SEND] + t.link[RECEIVE]
    per_byte = 1 / t.link[BANDWIDTH] + t.link[SEND_PER_BYTE] + t.link[RECEIVE_PER_BYTE]
    np.fill_diagonal(way_s, 0.0)
    np.fill_diagonal(per_byte, 0.0)
    return Line(order, t.cost_s[order], start, at[t.src[by_position]], t.tensor_bytes[by_position], way_s, per_byte)


@jit
def screen(line: Line, rows: NDArray[np.int32], out: NDArray[np.float64]) -> None:
    """Fill out[i] with the estimated seconds of rows[i], NaN if a device does not exist. rows: [n, ops] devices."""
    op, cost_s, start, producer, size = line.op, line.cost_s, line.start, line.producer, line.tensor_bytes
    way_s, way_s_per_byte = line.way_s, line.way_s_per_byte
    n, devices = cost_s.shape
    device, finish_s, free_s = np.empty(n, np.int32), np.empty(n), np.empty(devices)
    for row in range(len(rows)):
        free_s[:] = 0.0
        last_s = 0.0
        for i in range(n):
            d = rows[row, op[i]]
            if d < 0 or d >= devices:
                last_s = np.nan
                break
            device[i] = d
            at_s = free_s[d]
            for k in range(start[i], start[i + 1]):
                j = producer[k]
                s = device[j]
                at_s = max(at_s, finish_s[j] + (way_s[s, d] + size[k] * way_s_per_byte[s, d]))
            at_s += cost_s[i, d]
            finish_s[i] = free_s[d] = at_s
            last_s = max(last_s, at_s)
        out[row] = last_s
