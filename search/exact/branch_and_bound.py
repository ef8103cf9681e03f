"""Branch and bound over where units go, compiled: depth first, each node with the devices that are left to each unit.

A node's devices shrink as long as a unit on a device would take what is known already; what is left is branched on.
The file is long because compiled code is cached by file: a kernel and all it calls must share one (surrogate/jit.py).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surrogate.jit import jit, kernel, part

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Bools = NDArray[np.bool_]

# Rounds in which a node's devices may shrink, and tails from which on work is added up.
SHRINKS, TAILS = 3, 24
# Sums of bytes may end a few last digits higher in another order; leaves are checked again.
MARGIN = 1e-9


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
    way_s: Floats  # [t, d, d]
    receive_s: Floats  # [t, d, d] max-load: the same for all senders
    works: bool  # whether crossings keep anybody busy


class Path(NamedTuple):
    """Where the search stands: the nodes from the root to the one in question, by depth."""

    left: Bools  # [depth, u, d] the devices that are left to each unit
    unit: Ints  # [depth] that is branched on
    child: Ints  # [depth, d] devices, the most promising first
    bound_s: Floats  # [depth, d] of the children
    children: Ints  # [depth] how many
    next: Ints  # [depth] child to look into; -1 where the node itself is new
    depth: Ints  # [1] -1 at the end


class Work(NamedTuple):
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
def path_from(left: Bools) -> Path:
    """The path that starts at the root, where the devices `left`, [u, d], are left to each unit."""
    units, devices = left.shape
    lefts = np.zeros((units + 1, units, devices), np.bool_)
    lefts[0] = left
    return Path(
        lefts,
        np.zeros(units + 1, np.int32),
        np.zeros((units + 1, devices), np.int32),
        np.zeros((units + 1, devices)),
        np.zeros(units + 1, np.int32),
        np.full(units + 1, -1, np.int32),
        np.zeros(1, np.int32),
    )


@jit
def workspace(t: Tree) -> Work:
    """Room for the bounds of these nodes."""
    n, devices = t.cost_s.shape
    units = len(t.unit_bytes)
    jobs = n + 2 * (len(t.user) if t.works else 0)
    return Work(
        np.empty((n, devices)),
        np.empty((n, devices)),
        np.empty((units, devices)),
        np.empty(units, np.int32),
        np.empty(devices),
        np.empty(devices),
        np.empty((len(t.weights), units, devices)),
        np.empty((units, devices)),
        np.empty(jobs),
        np.empty(jobs),
        np.empty(jobs),
        np.empty(jobs, np.int32),
        np.empty(jobs),
        np.empty(jobs, np.int32),
        np.empty(devices, np.int32),
    )


@part
def _fix(t: Tree, w: Work, left: Bools) -> bool:
    """Note which units are fixed, and what memory they leave; whether all may still fit."""
    units, devices = left.shape
    for d in range(devices):
        w.free_bytes[d] = t.capacity_bytes[d]
    for u in range(units):
        w.at[u] = -1
        count = 0
        for d in range(devices):
            if left[u, d]:
                w.at[u] = d
                count += 1
        if count == 0:
            return False
        if count > 1:
            w.at[u] = -1
        else:
            w.free_bytes[w.at[u]] -= t.unit_bytes[u]
    full = False
    for d in range(devices):
        full = full or w.free_bytes[d] < -MARGIN * t.capacity_bytes[d]
    return not full


@part
def _pass(t: Tree, w: Work, left: Bools) -> None:
    """Heads and tails of ops, and the heaviest path through each unit on each device that is left to it."""
    n, devices = t.cost_s.shape
    for v in range(n):
        u = t.unit_of[v]
        for d in range(devices):
            w.head_s[v, d] = w.tail_s[v, d] = 0.0 if left[u, d] else np.inf
    for p in range(len(t.src)):
        u, v = t.src[p], t.dst[p]
        for d in range(devices):
            if left[t.unit_of[v], d]:
                best_s = np.inf
                for s in range(devices):
                    if left[t.unit_of[u], s]:
                        best_s = min(best_s, w.head_s[u, s] + t.cost_s[u, s] + t.cross_s[p, s, d])
                w.head_s[v, d] = max(w.head_s[v, d], best_s)
    for p in range(len(t.src) - 1, -1, -1):
        u, v = t.src[p], t.dst[p]
        for s in range(devices):
            if left[t.unit_of[u], s]:
                best_s = np.inf
                for d in range(devices):
                    if left[t.unit_of[v], d]:
                        best_s = min(best_s, t.cross_s[p, s, d] + t.cost_s[v, d] + w.tail_s[v, d])
                w.tail_s[u, s] = max(w.tail_s[u, s], best_s)
    w.through_s[:] = 0.0
    for v in range(n):
        u = t.unit_of[v]
        for d in range(devices):
            if left[u, d]:
                through_s = w.head_s[v, d] + t.cost_s[v, d] + w.tail_s[v, d]
                w.through_s[u, d] = max(w.through_s[u, d], through_s)


@part
def _jobs(t: Tree, w: Work, left: Bools) -> int:
    """List all work, with what must come before and after it; how many pieces there are."""
    n, devices = t.cost_s.shape
    for v in range(n):
        u = t.unit_of[v]
        head_s, tail_s = np.inf, np.inf
        for d in range(devices):
            if left[u, d]:
                head_s, tail_s = min(head_s, w.head_s[v, d]), min(tail_s, w.tail_s[v, d])
        w.job_head_s[v], w.job_tail_s[v], w.job_at[v] = head_s, tail_s, w.at[u]
        w.job_s[v] = t.cost_s[v, w.at[u]] if w.at[u] >= 0 else 0.0
    count: int = n
    if not t.works:
        return count
    for k in range(len(t.maker)):
        m = t.maker[k]
        s = w.at[t.unit_of[m]]
        if s < 0:
            continue
        w.seen[:] = -1
        made_s = w.head_s[m, s] + t.cost_s[m, s]
        for i in range(t.first_user[k], t.first_user[k + 1]):
            v = t.user[i]
            d = w.at[t.unit_of[v]]
            if d < 0 or d == s:
                continue
            after_s = t.cost_s[v, d] + w.tail_s[v, d]
            j = w.seen[d]
            if j < 0:
                send_s, way_s, receive_s = t.send_s[k, s, d], t.way_s[k, s, d], t.receive_s[k, s, d]
                w.job_head_s[count], w.job_tail_s[count] = made_s, way_s + receive_s + after_s
                w.job_s[count], w.job_at[count] = send_s, s
                w.job_head_s[count + 1], w.job_tail_s[count + 1] = made_s + send_s + way_s, after_s
                w.job_s[count + 1], w.job_at[count + 1] = receive_s, d
                w.seen[d] = count
                count += 2
            else:
                w.job_tail_s[j] = max(w.job_tail_s[j], t.way_s[k, s, d] + t.receive_s[k, s, d] + after_s)
                w.job_tail_s[j + 1] = max(w.job_tail_s[j + 1], after_s)
    return count


@part
def _sort(w: Work, count: int) -> None:
    """Jobs with late heads first: a shell sort of `line`."""
    for j in range(count):
        w.line[j] = j
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            job = w.line[i]
            at = i
            while at >= gap and w.job_head_s[w.line[at - gap]] < w.job_head_s[job]:
                w.line[at] = w.line[at - gap]
                at -= gap
            w.line[at] = job
        gap //= 3


@part
def _between(t: Tree, w: Work, left: Bools, count: int) -> float:
    """Work of late heads and long tails, on each device and divided over all: head + work + tail, at its largest."""
    devices = t.cost_s.shape[1]
    best_s = 0.0
    for d in range(devices):
        for i in range(count):
            if w.job_at[w.line[i]] != d:
                continue
            after_s, sum_s = w.job_tail_s[w.line[i]], 0.0
            for m in range(count):
                j = w.line[m]
                if w.job_at[j] == d and w.job_tail_s[j] >= after_s:
                    sum_s += w.job_s[j]
                    best_s = max(best_s, w.job_head_s[j] + sum_s + after_s)
    step = max(1, count // TAILS)
    for k in range(len(t.weights)):
        for j in range(count):
            if w.job_at[j] >= 0:
                w.least_s[j] = t.weights[k, w.job_at[j]] * w.job_s[j]
                continue
            w.least_s[j] = np.inf  # an op that is not fixed: jobs begin with the ops
            for d in range(devices):
                if left[t.unit_of[j], d]:
                    w.least_s[j] = min(w.least_s[j], t.weights[k, d] * t.cost_s[j, d])
        for i in range(0, count, step):
            after_s, sum_s = w.job_tail_s[w.line[i]], 0.0
            for m in range(count):
                j = w.line[m]
                if w.job_tail_s[j] < after_s:
                    continue
                sum_s += w.least_s[j]
                best_s = max(best_s, w.job_head_s[j] + sum_s + after_s)
    return best_s


@part
def _shares(t: Tree, w: Work, left: Bools) -> None:
    """Max-load: what fixed units load, and what each other one would add on each device, by itself and divided.

    A tensor that several units might fetch to one device is divided among them.
    """
    units, devices = left.shape
    w.load_s[:] = 0.0
    for u in range(units):
        for d in range(devices):
            if left[u, d]:
                w.alone_s[u, d] = t.unit_cost_s[u, d]
                for k in range(len(t.weights)):
                    w.share_s[k, u, d] = t.weights[k, d] * t.unit_cost_s[u, d]
        if w.at[u] >= 0:
            w.load_s[w.at[u]] += t.unit_cost_s[u, w.at[u]]
    for i in range(len(t.maker)):
        m = t.unit_of[t.maker[i]]
        s = w.at[m]
        w.seen[:] = 0
        loose, distinct = 0, 0
        for j in range(t.first_user[i], t.first_user[i + 1]):
            d = w.at[t.unit_of[t.user[j]]]
            if d < 0:
                loose += 1
            elif d != s and w.seen[d] == 0:
                w.seen[d] = 1
                distinct += 1
                if s >= 0:
                    w.load_s[d] += t.receive_s[i, s, d]
        if s >= 0:
            out_s = t.send_s[i, s, s]
            if distinct > 0:
                w.load_s[s] += out_s
            for j in range(t.first_user[i], t.first_user[i + 1]):
                u = t.unit_of[t.user[j]]
                if w.at[u] >= 0:
                    continue
                for d in range(devices):
                    if d == s or not left[u, d]:
                        continue
                    in_s = 0.0 if w.seen[d] else t.receive_s[i, s, d]
                    w.alone_s[u, d] += in_s / loose
                    for k in range(len(t.weights)):
                        w.share_s[k, u, d] += t.weights[k, d] * in_s / loose
                        if distinct == 0:
                            w.share_s[k, u, d] += t.weights[k, s] * out_s / loose
        elif distinct > 0:
            for d in range(devices):
                if not left[m, d] or (distinct == 1 and w.seen[d]):
                    continue
                w.alone_s[m, d] += t.send_s[i, d, d]
                for k in range(len(t.weights)):
                    w.share_s[k, m, d] += t.weights[k, d] * t.send_s[i, d, d]
                    for e in range(devices):
                        if e != d and w.seen[e]:
                            w.share_s[k, m, d] += t.weights[k, e] * t.receive_s[i, d, e]


@part
def _divided(t: Tree, w: Work, left: Bools) -> float:
    """Max-load: the bound of a node, and in `through_s` those with one more unit fixed."""
    units, devices = left.shape
    _shares(t, w, left)
    best_s = 0.0
    for d in range(devices):
        best_s = max(best_s, w.load_s[d])
    for u in range(units):
        for d in range(devices):
            w.through_s[u, d] = w.load_s[d] + (w.alone_s[u, d] if w.at[u] < 0 else 0.0)
    for k in range(len(t.weights)):
        sum_s = 0.0
        for d in range(devices):
            sum_s += t.weights[k, d] * w.load_s[d]
        for u in range(units):
            if w.at[u] < 0:
                least_s = np.inf
                for d in range(devices):
                    if left[u, d]:
                        least_s = min(least_s, w.share_s[k, u, d])
                sum_s += least_s
        best_s = max(best_s, sum_s)
        for u in range(units):
            if w.at[u] < 0:
                least_s = np.inf
                for d in range(devices):
                    if left[u, d]:
                        least_s = min(least_s, w.share_s[k, u, d])
                for d in range(devices):
                    if left[u, d]:
                        w.through_s[u, d] = max(w.through_s[u, d], sum_s - least_s + w.share_s[k, u, d])
    return best_s


@part
def _bound(t: Tree, w: Work, left: Bools, cut_s: float) -> float:
    """A bound of the node, whose devices shrink; infinite where nothing is left below cut_s."""
    units, devices = left.shape
    bound_s = 0.0
    for _ in range(SHRINKS):
        if not _fix(t, w, left):
            return np.inf
        if t.pipeline:
            bound_s = _divided(t, w, left)
        else:
            _pass(t, w, left)
        shrunk = False
        for u in range(units):
            least_s = np.inf
            for d in range(devices):
                if not left[u, d]:
                    continue
                over = w.at[u] < 0 and t.unit_bytes[u] > w.free_bytes[d] + MARGIN * t.capacity_bytes[d]
                if w.through_s[u, d] >= cut_s or over:
                    left[u, d] = False
                    shrunk = True
                else:
                    least_s = min(least_s, w.through_s[u, d])
            bound_s = max(bound_s, least_s)
        if bound_s >= cut_s or not shrunk:
            break
    if bound_s >= cut_s:
        return np.inf
    if not _fix(t, w, left):
        return np.inf
    if not t.pipeline:
        count = _jobs(t, w, left)
        _sort(w, count)
        bound_s = max(bound_s, _between(t, w, left, count))
    return bound_s


@part
def _branch(t: Tree, w: Work, path: Path, depth: int, bound_s: float) -> bool:
    """Choose the unit to branch on and put its devices in line; False where all units are fixed."""
    left = path.left[depth]
    units, devices = left.shape
    chosen, most_s, most_work_s = -1, -1.0, -1.0
    for u in range(units):
        if w.at[u] >= 0:
            continue
        first_s, second_s, work_s = np.inf, np.inf, np.inf
        for d in range(devices):
            if left[u, d]:
                work_s = min(work_s, t.unit_cost_s[u, d])
                through_s = max(bound_s, w.through_s[u, d])
                if through_s < first_s:
                    first_s, second_s = through_s, first_s
                else:
                    second_s = min(second_s, through_s)
        gain_s = second_s - bound_s
        if gain_s > most_s * (1 + 1e-9) or (gain_s >= most_s * (1 - 1e-9) and work_s > most_work_s):
            chosen, most_s, most_work_s = u, gain_s, work_s
    if chosen < 0:
        return False
    count = 0
    for d in range(devices):
        if not left[chosen, d] or _has_twin(t, w, left, d):
            continue
        child_s = max(bound_s, w.through_s[chosen, d])
        i = count
        while i > 0 and path.bound_s[depth, i - 1] > child_s:
            path.bound_s[depth, i], path.child[depth, i] = path.bound_s[depth, i - 1], path.child[depth, i - 1]
            i -= 1
        path.bound_s[depth, i], path.child[depth, i] = child_s, d
        count += 1
    path.unit[depth], path.children[depth], path.next[depth] = chosen, count, 0
    return True


@part
def _has_twin(t: Tree, w: Work, left: Bools, d: int) -> bool:
    """Whether an earlier device could change names with d and nothing else would change."""
    for a in range(d):
        if t.alike[a] != t.alike[d]:
            continue
        same = True
        for u in range(len(t.unit_bytes)):
            if left[u, a] != left[u, d] or w.at[u] == a or w.at[u] == d:
                same = False
                break
        if same:
            return True
    return False


@kernel
def _explore(t: Tree, w: Work, path: Path, cut_s: float, nodes: int, leaves: Ints) -> tuple[int, int]:
    """See `explore`."""
    looked, found = 0, 0
    while path.depth[0] >= 0 and looked < nodes and found < len(leaves):
        depth = path.depth[0]
        if path.next[depth] < 0:
            looked += 1
            bound_s = _bound(t, w, path.left[depth], cut_s)
            if bound_s >= cut_s:
                path.depth[0] -= 1
            elif not _branch(t, w, path, depth, bound_s):
                for u in range(len(w.at)):
                    leaves[found, u] = w.at[u]
                found += 1
                path.depth[0] -= 1
            continue
        i = path.next[depth]
        if i == path.children[depth] or path.bound_s[depth, i] >= cut_s:
            path.depth[0] -= 1
            continue
        path.next[depth] += 1
        for u in range(len(w.at)):
            for d in range(len(w.load_s)):
                path.left[depth + 1, u, d] = path.left[depth, u, d] and u != path.unit[depth]
        path.left[depth + 1, path.unit[depth], path.child[depth, i]] = True
        path.next[depth + 1] = -1
        path.depth[0] += 1
    return looked, found


@jit
def explore(t: Tree, path: Path, cut_s: float, nodes: int, leaves: Ints) -> tuple[int, int]:
    """Go on until `nodes` nodes were looked at or the [n, units] `leaves` are full: (nodes, leaves found).

    Only what may be below cut_s is looked into. path.depth is -1 when nothing is left.
    """
    return _explore(t, workspace(t), path, cut_s, nodes, leaves)


@jit
def open_bound(path: Path) -> float:
    """The smallest bound of all nodes that were not looked into; infinite where none is left."""
    least_s = np.inf
    for depth in range(path.depth[0] + 1):
        if path.next[depth] < 0:
            least_s = min(least_s, 0.0 if depth == 0 else path.bound_s[depth - 1, path.next[depth - 1] - 1])
        else:
            for i in range(path.next[depth], path.children[depth]):
                least_s = min(least_s, path.bound_s[depth, i])
    return least_s
