"""The data of branch and bound: what all nodes of its tree share, and the workspace for their bounds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surrogate.jit import jit

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Bools = NDArray[np.bool_]


class Tree(NamedTuple):
    """The data that all nodes share. v: op, u: unit, d: device, p: pair of producer and consumer, t: tensor, k: set of
    weights.
    """

    pipeline: bool  # whether the objective is max-load; else makespan
    unit_of: Ints  # [v]
    cost_s: Floats  # [v, d]
    unit_cost_s: Floats  # [u, d]
    unit_bytes: Floats  # [u]
    capacity_bytes: Floats  # [d]
    alike: Ints  # [d]
    weights: Floats  # [k, d] each with sum 1
    src: Ints  # [p] op, in topological order
    dst: Ints  # [p] op
    cross_s: Floats  # [p, d, d]
    first_user: Ints  # [t + 1] into `user`
    user: Ints  # op
    maker: Ints  # [t] op
    send_s: Floats  # [t, d, d] how long a crossing keeps the sender busy; max-load: the same for all receivers
    link_s: Floats  # [t, d, d]
    receive_s: Floats  # [t, d, d] max-load: the same for all senders
    works: bool  # whether crossings keep any device busy


class BoundState(NamedTuple):
    """The workspace for a node's bound. Letters as in `Tree`; a job is a piece of work on one device."""

    head_s: Floats  # [v, d]
    tail_s: Floats  # [v, d]
    through_s: Floats  # [u, d] a bound if unit u is on device d
    at: Ints  # [u] the device of a fixed unit, else -1
    free_bytes: Floats  # [d]
    load_s: Floats  # [d]
    share_s: Floats  # [k, u, d]
    alone_s: Floats  # [u, d]
    job_head_s: Floats  # [job]
    job_tail_s: Floats
    job_s: Floats
    job_at: Ints  # device, -1 for an op that is not fixed
    least_s: Floats  # [job] the least weighted seconds of the job
    line: Ints
    seen: Ints  # [d]


@jit
def workspace(tree: Tree) -> BoundState:
    """Allocate the workspace for the bounds of the tree's nodes."""
    n, devices = tree.cost_s.shape
    units = len(tree.unit_bytes)
    jobs = n + 2 * (len(tree.user) if tree.works else 0)
    return BoundState(
        head_s=np.empty((n, devices)),
        tail_s=np.empty((n, devices)),
        through_s=np.empty((units, devices)),
        at=np.empty(units, np.int32),
        free_bytes=np.empty(devices),
        load_s=np.empty(devices),
        share_s=np.empty((len(tree.weights), units, devices)),
        alone_s=np.empty((units, devices)),
        job_head_s=np.empty(jobs),
        job_tail_s=np.empty(jobs),
        job_s=np.empty(jobs),
        job_at=np.empty(jobs, np.int32),
        least_s=np.empty(jobs),
        line=np.empty(jobs, np.int32),
        seen=np.empty(devices, np.int32),
    )
