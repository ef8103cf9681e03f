"""The bounds of a node of branch and bound: paths and the work within them for the makespan, work for max-load."""

from __future__ import annotations

import numpy as np

from search.exact.tree import Bools, BoundState, Tree
from surrogate.jit import inner

TAILS = 24  # how many tails are tried as ends of an interval of work that is divided over all devices
TAILS_OF_ONE = 1024  # the same for the work of one device


@inner
def paths(t: Tree, w: BoundState, left: Bools) -> None:
    """Compute heads and tails of ops, and the heaviest path through each unit on each device that is left to it."""
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


@inner
def jobs(t: Tree, w: BoundState, left: Bools) -> int:
    """List all jobs (ops, then sends and receives of fixed ops), with the least seconds before and after each.

    Return the number of jobs.
    """
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
                send_s, link_s, receive_s = t.send_s[k, s, d], t.link_s[k, s, d], t.receive_s[k, s, d]
                w.job_head_s[count], w.job_tail_s[count] = made_s, link_s + receive_s + after_s
                w.job_s[count], w.job_at[count] = send_s, s
                w.job_head_s[count + 1], w.job_tail_s[count + 1] = made_s + send_s + link_s, after_s
                w.job_s[count + 1], w.job_at[count + 1] = receive_s, d
                w.seen[d] = count
                count += 2
            else:
                w.job_tail_s[j] = max(w.job_tail_s[j], t.link_s[k, s, d] + t.receive_s[k, s, d] + after_s)
                w.job_tail_s[j + 1] = max(w.job_tail_s[j + 1], after_s)
    return count


@inner
def late_first(w: BoundState, count: int) -> None:
    """Sort `line` by late heads first, with a shell sort."""
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


@inner
def between(t: Tree, w: BoundState, left: Bools, count: int) -> float:
    """The largest head + work + tail, over sets of jobs with late heads and long tails. The work is that of one device,
    or divided over all devices.
    """
    devices = t.cost_s.shape[1]
    best_s = 0.0
    step = max(1, count // TAILS_OF_ONE)
    for d in range(devices):
        for i in range(0, count, step):
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
            w.least_s[j] = np.inf  # an op that is not fixed: j is its op index, because jobs begin with the ops
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


@inner
def _shares(t: Tree, w: BoundState, left: Bools) -> None:
    """Compute for max-load the loads of fixed units, and what each other unit would add on each device, alone and
    weighted.

    A tensor that several units might fetch to one device is divided among them. This is one function, because several
    smaller ones took up to a quarter longer.
    """
    units, devices = left.shape
    w.load_s[:] = 0.0
    for unit in range(units):
        for device in range(devices):
            if left[unit, device]:
                w.alone_s[unit, device] = t.unit_cost_s[unit, device]
                for k in range(len(t.weights)):
                    w.share_s[k, unit, device] = t.weights[k, device] * t.unit_cost_s[unit, device]
        if w.at[unit] >= 0:
            w.load_s[w.at[unit]] += t.unit_cost_s[unit, w.at[unit]]
    for tensor in range(len(t.maker)):
        maker = t.unit_of[t.maker[tensor]]
        home = w.at[maker]
        w.seen[:] = 0
        loose, fetching = 0, 0
        for i in range(t.first_user[tensor], t.first_user[tensor + 1]):
            device = w.at[t.unit_of[t.user[i]]]
            if device < 0:
                loose += 1
            elif device != home and w.seen[device] == 0:
                w.seen[device] = 1
                fetching += 1
                if home >= 0:
                    w.load_s[device] += t.receive_s[tensor, home, device]
        if home >= 0:
            out_s = t.send_s[tensor, home, home]
            if fetching > 0:
                w.load_s[home] += out_s
            for i in range(t.first_user[tensor], t.first_user[tensor + 1]):
                unit = t.unit_of[t.user[i]]
                if w.at[unit] >= 0:
                    continue
                for device in range(devices):
                    if device == home or not left[unit, device]:
                        continue
                    in_s = 0.0 if w.seen[device] else t.receive_s[tensor, home, device]
                    w.alone_s[unit, device] += in_s / loose
                    for k in range(len(t.weights)):
                        w.share_s[k, unit, device] += t.weights[k, device] * in_s / loose
                        if fetching == 0:
                            w.share_s[k, unit, device] += t.weights[k, home] * out_s / loose
        elif fetching > 0:
            for device in range(devices):
                if not left[maker, device] or (fetching == 1 and w.seen[device]):
                    continue
                w.alone_s[maker, device] += t.send_s[tensor, device, device]
                for k in range(len(t.weights)):
                    w.share_s[k, maker, device] += t.weights[k, device] * t.send_s[tensor, device, device]
                    for there in range(devices):
                        if there != device and w.seen[there]:
                            w.share_s[k, maker, device] += t.weights[k, there] * t.receive_s[tensor, device, there]


@inner
def divided(t: Tree, w: BoundState, left: Bools) -> float:
    """The bound of a node for max-load. Fills `through_s` with the bounds if one more unit is fixed."""
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
