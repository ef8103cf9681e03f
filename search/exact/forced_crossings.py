"""Crossings that no mapping avoids, because the two units can share no device."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from search.problem.problem import Limits, Problem
from search.problem.searcher import Stop, never
from surrogate.costs.cost_matrix import Costs
from surrogate.simulate.kernels.arrays import RECEIVE, RECEIVE_PER_BYTE, SEND, SEND_PER_BYTE, Needs, links_of

TENSORS_AT_ONCE = 256  # tensors between two checks of the clock


def forced_work_s(problem: Problem, stop: Stop = never) -> Costs:
    """Seconds of sending and receiving that a unit on a device causes in any case, [units, devices]. Tensors after
    `stop()` are left out.

    A tensor counts once for its maker, and once for each of its users, among those of which no two can share a device.
    """
    work_s = np.zeros((len(problem.units), len(problem.topology)))
    needs, limits = problem.simulator.needs, problem.limits
    out_s, out_byte_s, in_s, in_byte_s = _ends(problem)
    for i, (tensor_bytes, maker, users) in enumerate(_forced(needs, limits), start=1):
        if i % TENSORS_AT_ONCE == 0 and stop():
            break
        work_s[maker] += _least(out_s + tensor_bytes * out_byte_s, limits.feasible[users[0]])
        for user in _strangers(users, limits):
            work_s[user] += _least((in_s + tensor_bytes * in_byte_s).T, limits.feasible[maker])
    return work_s


def apart(u: NDArray[np.int32], v: NDArray[np.int32], limits: Limits) -> NDArray[np.bool_]:
    """Whether no device can run and hold both units of each pair of `u` and `v`. A unit is never apart from itself."""
    able = limits.feasible[u] & limits.feasible[v] & limits.hold_both(u, v)
    result: NDArray[np.bool_] = (u != v) & ~able.any(axis=1)
    return result


def _forced(needs: Needs, limits: Limits) -> list[tuple[float, int, list[int]]]:
    """Return (bytes, maker unit, user units apart from the maker) of each tensor that has such users."""
    maker, user = limits.unit_of[needs.src], limits.unit_of[needs.dst]
    found: dict[int, tuple[float, int, dict[int, None]]] = {}
    for k in np.flatnonzero(apart(maker, user, limits)).tolist():
        entry = (float(needs.tensor_bytes[k]), int(maker[k]), dict[int, None]())
        found.setdefault(int(needs.tensor[k]), entry)[2][int(user[k])] = None
    return [(size, unit, list(users)) for size, unit, users in found.values()]


def _strangers(users: list[int], limits: Limits) -> list[int]:
    """Choose some of `users` such that no two of them can share a device."""
    chosen: list[int] = []
    for user in users:
        others = np.array(chosen, np.int32)
        if apart(np.full(len(others), user, np.int32), others, limits).all():
            chosen.append(user)
    return chosen


def _ends(problem: Problem) -> tuple[Costs, Costs, Costs, Costs]:
    """Seconds of the sender's device per tensor and per byte, and of the receiver's device per tensor and per byte,
    each [src, dst], by the objective.
    """
    if problem.objective == "makespan":
        link = links_of(problem.topology)
        return link[SEND], link[SEND_PER_BYTE], link[RECEIVE], link[RECEIVE_PER_BYTE]
    ports = [(device.egress_bytes_per_s, device.ingress_bytes_per_s) for device in problem.topology.devices]
    egress, ingress = np.array([[0.0 if rate is None else 1 / rate for rate in pair] for pair in ports]).T
    none = np.zeros((len(ports), len(ports)))
    return none, none + egress[:, None], none, none + ingress


def _least(work_s: Costs, others: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The least seconds of each row, [devices], with its partner on another device among `others`; 0 without one."""
    able = others & ~np.eye(len(work_s), dtype=bool)
    least = np.where(able, work_s, np.inf).min(axis=1)
    return np.where(np.isfinite(least), least, 0.0)
