"""What no mapping can beat."""

from __future__ import annotations

import numpy as np

from search.problem import Problem
from surrogate.costs import Costs

ROUNDS = 200
TINY = 1e-30
# Sums in another order than the simulator takes them may end a few last digits higher.
ROUNDING = 1e-12


def lower_bound(problem: Problem) -> float:
    """Seconds that the objective of every mapping is at least; 0 only where all costs are 0.

    The largest of: each op on its fastest device along the heaviest path (makespan only), the heaviest unit
    on its fastest device, and all work divided over the devices as if it could be cut at will.
    """
    unit_cost_s = np.array(problem.unit_cost_s)
    bounds = [float(unit_cost_s.min(axis=1).max()), divided_work_s(unit_cost_s)]
    if problem.objective == "makespan":
        bounds.append(critical_path_s(problem))
        return (problem.base_s + max(bounds)) * (1 - ROUNDING)
    return max(bounds) * (1 - ROUNDING)


def critical_path_s(problem: Problem) -> float:
    """Seconds of the heaviest path, each op at its lowest cost among the devices its unit may use."""
    rows = problem.simulator.cost_s
    start_s = [0.0] * len(rows)
    end_s = list(start_s)
    for v in problem.graph.order:
        end_s[v] = start_s[v] + min(rows[v][d] for d in problem.feasible[problem.unit_of[v]])
        for e in problem.graph.out_edges[v]:
            start_s[e.dst] = max(start_s[e.dst], end_s[v])
    return max(end_s)


def divided_work_s(unit_cost_s: Costs) -> float:
    """The least largest load if units could be cut at will: the linear relaxation of unrelated machines.

    By duality every set of device weights w >= 0 with sum 1 gives the bound sum over units of min_d w_d *
    cost_s[u, d]; multiplicative updates raise the weight of devices that the minimum loads most.
    """
    weights = _mean_speeds(unit_cost_s)
    best = 0.0
    for round_ in range(1, ROUNDS + 1):
        weights = np.maximum(weights / weights.sum(), TINY)
        weights /= weights.sum()
        weighted = unit_cost_s * weights
        device = weighted.argmin(axis=1)
        best = max(best, float(weighted.min(axis=1).sum()))
        taken = unit_cost_s[np.arange(len(device)), device]
        load_s = np.bincount(device, weights=taken, minlength=unit_cost_s.shape[1])
        weights = weights * np.exp(load_s / max(load_s.max(), TINY) / np.sqrt(round_))
    return best


def _mean_speeds(unit_cost_s: Costs) -> Costs:
    """One over the mean cost on each device; 0 for a device that can run nothing."""
    can = np.isfinite(unit_cost_s)
    mean_s = np.where(can, unit_cost_s, 0.0).sum(axis=0) / np.maximum(can.sum(axis=0), 1)
    return np.where(can.any(axis=0), 1 / np.maximum(mean_s, TINY), 0.0)
