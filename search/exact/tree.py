"""The tree of branch and bound, and what its nodes' bounds are computed in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surrogate.jit import jit

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Bools = NDArray[np.bool_]


class Tree(NamedTuple):
    """What all nodes share. Ops v, units u, devices d, pairs p of producer and consumer, tensors t, weights k."""

    pipeline: bool  # the objective: max-load, else makespan
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
    send_s: Floats  # [t, d, d] what a crossing keeps the sender busy for; max-load: the same for all receivers
    link_s: Floats  # [t, d, d]
    receive_s: Floats  # [t, d, d] max-load: the same for all senders
    works: bool  # whether crossings keep anybody busy


class BoundState(NamedTuple):
    """What a node's bound is computed in."""

    head_s: Floats  # [v, d]
    tail_s: Floats  # [v, d]
    through_s: Floats  # [u, d] a bound with this unit there
    at: Ints  # [u] the device of a fixed unit, else -1
    free_bytes: Floats  # [d]
    load_s: Floats  # [d]
    share_s: Floats  # [k, u, d]
    alone_s: Floats  # [u, d]
    job_head_s: Floats  # [job]
    job_tail_s: Floats
    job_s: Floats
    job_at: Ints  # device, -1 for an op that is not fixed
    least_s: Floats  # [job] its share of the work at the least
    line: Ints
    seen: Ints  # [d]


@jit
def workspace(tree: Tree) -> BoundState:
    """Room for the bounds of these nodes."""
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
