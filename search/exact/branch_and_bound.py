"""Compiled branch and bound over the devices of units: depth first, each node with the devices left to each unit.

At a node, a device is removed from a unit if that unit on that device cannot beat the best known value. Then the node
branches on a unit. `tree` holds the data that all nodes share; `node_bounds` computes lower bounds of all mappings
below a node.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from search.exact.node_bounds import between, divided, jobs, late_first, paths
from search.exact.tree import Bools, BoundState, Floats, Ints, Tree, workspace
from surrogate.jit import inner, jit, kernel

SHRINKS = 3  # rounds in which devices may be removed at a node
MARGIN = 1e-9  # relative: sums of bytes differ in their last digits with their order; leaves are checked again


class Path(NamedTuple):
    """The state of the search: the nodes from the root to the current node, by depth. u: unit, d: device."""

    left: Bools  # [depth, u, d] the devices that are left to each unit
    unit: Ints  # [depth] the unit to branch on
    child: Ints  # [depth, d] its devices, the most promising first
    bound_s: Floats  # [depth, d] the bounds of the children
    children: Ints  # [depth] the number of children
    next: Ints  # [depth] the child to visit next; -1 if the node itself is new
    depth: Ints  # [1] -1 at the end


@jit
def path_from(left: Bools) -> Path:
    """Return the path that starts at the root, with the devices `left`, [u, d], for each unit."""
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


@inner
def _fix(t: Tree, w: BoundState, left: Bools) -> bool:
    """Find the units with a single device left, and the memory that they leave. Return whether all may still fit."""
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


@inner
def _bound(t: Tree, w: BoundState, left: Bools, cut_s: float) -> float:
    """Remove devices from units, and return a bound of the node; infinite if no mapping below cut_s is left."""
    units, devices = left.shape
    bound_s = 0.0
    for _ in range(SHRINKS):
        if not _fix(t, w, left):
            return np.inf
        if t.pipeline:
            bound_s = divided(t, w, left)
        else:
            paths(t, w, left)
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
        count = jobs(t, w, left)
        late_first(w, count)
        bound_s = max(bound_s, between(t, w, left, count))
    return bound_s


@inner
def _branch(t: Tree, w: BoundState, path: Path, depth: int, bound_s: float) -> bool:
    """Choose the unit to branch on and sort its devices by bound; return False if all units are fixed."""
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


@inner
def _has_twin(t: Tree, w: BoundState, left: Bools, d: int) -> bool:
    """Whether an earlier device differs from d only in the name, at this node too."""
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
def _explore(t: Tree, w: BoundState, path: Path, cut_s: float, nodes: int, leaves: Ints) -> tuple[int, int]:
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
def explore(tree: Tree, path: Path, cut_s: float, nodes: int, leaves: Ints) -> tuple[int, int]:
    """Visit nodes until `nodes` nodes were visited or `leaves`, [n, units], is full. Return (nodes visited, leaves
    found).

    Only nodes that may be below cut_s are visited. path.depth is -1 when no node is left.
    """
    return _explore(tree, workspace(tree), path, cut_s, nodes, leaves)


@jit
def open_bound(path: Path) -> float:
    """The smallest bound of all nodes that were not visited; infinite if none is left."""
    least_s = np.inf
    for depth in range(path.depth[0] + 1):
        if path.next[depth] < 0:
            least_s = min(least_s, 0.0 if depth == 0 else path.bound_s[depth - 1, path.next[depth - 1] - 1])
        else:
            for i in range(path.next[depth], path.children[depth]):
                least_s = min(least_s, path.bound_s[depth, i])
    return least_s
