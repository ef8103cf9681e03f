"""Lower bounds of the objective, in seconds, that hold for every mapping."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from search.exact.divided_work import TINY, divided_work
from search.exact.forced_crossings import forced_work_s
from search.problem.problem import Problem
from search.problem.searcher import Stop, never
from surrogate.costs.cost_matrix import Costs

Floats = NDArray[np.float64]

ROUNDING = 1e-12  # relative: sums differ from the simulator's in their last digits, because their order differs
EPSILON = float(np.finfo(np.float64).eps)
CLOSE = 1e-9  # a value within this share of a lower bound cannot be improved
THRESHOLDS = 64  # the most heads, and the most tails, that are tried
INTERVALS, INTERVAL_ROUNDS = 2, 30  # the number of best intervals whose weights are fitted, and the rounds of the fit
LARGEST_PROGRAM = 4_000  # units times devices up to which the linear program with memory is worth its time


def lower_bound(problem: Problem, stop: Stop = never) -> float:
    """Return a lower bound of the objective of every mapping, in seconds; 0 only if all costs are 0. After `stop()` the
    rest of the work is left out, and the bound may be smaller.

    The bound is the largest of several: all work, with the sends and receives that no mapping avoids, divided over the
    devices as if units could be cut at will, within memory; the heaviest unit on its fastest device; and, for the
    makespan, the heaviest path with its crossings, and the work that must be done between the heads and the tails of
    ops.
    """
    unit_cost_s = np.array(problem.unit_cost_s) + forced_work_s(problem, stop)
    work_s, weights = divided_work(unit_cost_s, stop=stop)
    bounds = [float(unit_cost_s.min(axis=1).max()), work_s]
    if not (problem.is_roomy or stop()):
        bounds.append(divided_within_memory_s(problem, unit_cost_s))
    if problem.objective == "makespan" and not stop():
        bounds += _with_ways(problem, weights, stop)
    best_s = max(b for b in bounds if b < np.inf)
    return (problem.beside_s + best_s) * (1 - rounding(problem))


def rounding(problem: Problem) -> float:
    """The relative difference that rounding can make between two sums with the terms of a longest path."""
    return max(ROUNDING, 4 * EPSILON * (len(problem.graph) + 4 * len(problem.graph.edges)))


def _with_ways(problem: Problem, weights: Floats, stop: Stop) -> list[float]:
    """Return the bounds that follow from the order of the ops."""
    from search.problem.longest_paths import heads, path_tables  # numba is slow to import

    ways = path_tables(problem.simulator.tables, problem.limits, problem.graph.order)
    head_s = heads(ways, stop)
    if stop():  # the tails take as long as the heads
        return []
    tail_s = problem.tail_s
    path_s = critical_path_s(problem, head_s + ways.cost_s + tail_s)
    if not path_s < np.inf:  # every mapping needs a missing link, so none can be simulated
        return [path_s]
    return [path_s, interval_s(problem, ways.cost_s, head_s.min(axis=1), tail_s.min(axis=1), weights, stop)]


def critical_path_s(problem: Problem, through_s: Floats) -> float:
    """Seconds of the heaviest path. through_s: [ops, devices] seconds of the heaviest path through each op on each
    device.

    A unit goes to the device that is best for the worst of its ops.
    """
    worst_s = np.zeros((len(problem.units), through_s.shape[1]))
    np.maximum.at(worst_s, problem.limits.unit_of, through_s)
    return float(worst_s.min(axis=1).max())


def interval_s(
    problem: Problem, cost_s: Costs, head_s: Floats, tail_s: Floats, weights: Floats, stop: Stop = never
) -> float:
    """The bound of intervals: ops with at least a seconds before and b seconds after them must run in between, which
    takes a + their divided work + b.

    cost_s: [ops, devices]; head_s, tail_s: [ops]. The largest bound over a grid of a and b is returned. The work is
    divided by several device weights (see `divided_work`), and for the best intervals by weights fitted to their ops.
    """
    a, b = _thresholds(head_s), _thresholds(tail_s)
    row, column = np.searchsorted(a, head_s, "right") - 1, np.searchsorted(b, tail_s, "right") - 1
    devices = cost_s.shape[1]
    found = np.zeros((len(a), len(b)))
    able = np.isfinite(cost_s)
    known_s = np.where(able, cost_s, 0.0)
    alone = (able & (able.sum(axis=1) == 1)[:, None]).any(axis=0)  # all weight on any other device divides no work
    for w in [weights, np.full(devices, 1 / devices), *np.eye(devices)[alone]]:
        if stop():
            break
        share_s = np.where(able, known_s * w, np.inf).min(axis=1)
        cells = _summed(share_s, row * len(b) + column, found.size).reshape(found.shape)
        np.maximum(found, a[:, None] + _inside(cells) + b, out=found)
    counted = _summed(np.ones(len(row)), row * len(b) + column, found.size).reshape(found.shape)
    found[_inside(counted) == 0] = 0.0
    best_s = float(found.max())
    for cell in np.argsort(found, axis=None)[::-1][:INTERVALS]:
        i, j = np.unravel_index(cell, found.shape)
        ops = np.flatnonzero((row >= i) & (column >= j))
        if not len(ops) or stop():
            break
        inside_s, _ = divided_work(_by_unit(problem, cost_s, ops), INTERVAL_ROUNDS, stop)
        best_s = max(best_s, float(a[i] + b[j]) + inside_s)
    return best_s


def _inside(cells: Floats) -> Floats:
    """Return for each cell the sum of all cells from it on, to the right and below."""
    inside: Floats = cells[::-1, ::-1].cumsum(axis=0).cumsum(axis=1)[::-1, ::-1]
    return inside


def _thresholds(values: Floats) -> Floats:
    """Return at most THRESHOLDS of the values in ascending order, including the lowest."""
    different = np.unique(values)
    if len(different) <= THRESHOLDS:
        return different
    sample: Floats = different[np.linspace(0, len(different) - 1, THRESHOLDS).astype(int)]
    return sample


def _by_unit(problem: Problem, cost_s: Costs, ops: NDArray[np.int64]) -> Costs:
    """Return the costs of `ops`, summed by unit."""
    units, of = np.unique(problem.limits.unit_of[ops], return_inverse=True)
    summed = np.zeros((len(units), cost_s.shape[1]))
    np.add.at(summed, of, cost_s[ops])
    return summed


def divided_within_memory_s(problem: Problem, unit_cost_s: Costs) -> float:
    """Return the bound of `divided_work` within the memory limits; 0 if the linear program is too large or not solved.

    The program gives weights w and multipliers m >= 0, in seconds per byte, from which the bound is computed:
    sum over units of min_d (w_d * cost_s[u, d] + m_d * bytes_u) - sum over devices of m_d * capacity_bytes_d.
    """
    if unit_cost_s.size > LARGEST_PROGRAM:
        return 0.0
    size, capacity = problem.limits.unit_bytes, problem.limits.capacity_bytes
    dual = _dual(unit_cost_s, size, capacity)
    if dual is None:
        return 0.0
    weights, dearer = dual
    paid_s = float((unit_cost_s * weights + dearer * size[:, None]).min(axis=1).sum())
    back_s = float((dearer * np.where(np.isfinite(capacity), capacity, 0.0)).sum())
    return paid_s - back_s - ROUNDING * (paid_s + back_s)


def _dual(unit_cost_s: Costs, size: Floats, capacity: Floats) -> tuple[Floats, Floats] | None:
    """Return the dual weights and multipliers, [devices] each, of the program: minimise T such that each unit is
    divided over devices, each load is <= T, and memory is enough. None if the program was not solved.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array, hstack, vstack

    devices = unit_cost_s.shape[1]
    u, d = np.nonzero(np.isfinite(unit_cost_s))
    each = np.arange(len(u))
    scale_s = max(float(unit_cost_s[u, d].mean()), TINY)
    load = coo_array((unit_cost_s[u, d] / scale_s, (d, each)), (devices, len(u)))
    limit = np.where(np.isfinite(capacity), capacity, size.sum())
    largest = max(float(limit.max()), 1.0)
    held = coo_array((size[u] / largest, (d, each)), (devices, len(u)))
    time = coo_array(np.repeat([-1.0, 0.0], devices)[:, None])
    solved = linprog(
        np.append(np.zeros(len(u)), 1.0),
        A_ub=hstack([vstack([load, held]), time]),
        b_ub=np.append(np.zeros(devices), limit / largest),
        A_eq=coo_array((np.ones(len(u)), (u, each)), (len(size), len(u) + 1)),
        b_eq=np.ones(len(size)),
    )
    if solved.status != 0:
        return None
    weights, dearer = np.split(np.maximum(-solved.ineqlin.marginals, 0.0), 2)
    total = max(float(weights.sum()), TINY)
    return np.maximum(weights / total, TINY), np.where(np.isfinite(capacity), dearer / total * scale_s / largest, 0.0)


def _summed(values: Floats, place: NDArray[np.int64], places: int) -> Floats:
    return np.bincount(place, values, places).astype(np.float64)
