"""The critical path of a simulated step: the ops that have to change for the step to become shorter."""

from __future__ import annotations

import numpy as np

from surrogate.jit import jit
from surrogate.simulate.kernels.arrays import Tables
from surrogate.simulate.kernels.run_state import NOTHING, Floats, Ints
from surrogate.simulate.kernels.transfer import transfer_s


@jit
def critical_path(t: Tables, device: Ints, end_s: Floats, path: Ints) -> int:
    """Fill `path`, [ops], with the ops of the critical path, the last op first, and return their number.

    The path goes back from the op that ends last. Before each op comes the op that it waited for: the one before it on
    its device, or the one whose tensor arrived last, whichever was later. Queues before links are ignored.
    device, end_s: [ops] of a finished run.
    """
    earlier, on_it = np.empty(len(device), np.int64), np.zeros(len(device), np.bool_)
    last = np.full(t.cost_s.shape[1], NOTHING, np.int64)
    order = np.argsort(end_s, kind="mergesort")
    for v in order:
        earlier[v] = last[device[v]]
        last[device[v]] = v
    v, count = order[-1], 0
    while v != NOTHING and not on_it[v]:
        path[count], on_it[v] = v, True
        count += 1
        before, latest_s = earlier[v], -1.0
        if before != NOTHING:
            latest_s = end_s[before]
        for i in range(t.first_input[v], t.first_input[v + 1]):
            need = t.by_dst[i]
            u = t.src[need]
            send_s, way_s, receive_s = transfer_s(t.link, device[u], device[v], t.tensor_bytes[need])
            at_s = end_s[u] + send_s + way_s + receive_s
            if at_s > latest_s:
                before, latest_s = np.int64(u), at_s
        v = before
    return count
