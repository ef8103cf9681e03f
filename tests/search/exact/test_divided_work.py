"""Divided work: never more than the least largest load, and close to it whatever the devices are able to run."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from search.exact.bounds import lower_bound
from search.exact.divided_work import divided_work
from search.exact.exact import tree_of
from search.problem.problem import Problem


def least_s(cost_s):
    """The least largest load of units that may be cut, by a linear program."""
    units, devices = cost_s.shape
    scale_s = cost_s[np.isfinite(cost_s)].max() or 1.0
    loads, whole = np.zeros((devices, cost_s.size + 1)), np.zeros((units, cost_s.size + 1))
    for i, (u, d) in enumerate(product(range(units), range(devices))):
        loads[d, i] = cost_s[u, d] / scale_s if np.isfinite(cost_s[u, d]) else 0.0
        whole[u, i] = 1.0
    loads[:, -1] = -1.0
    most = [(0, 1 if able else 0) for able in np.isfinite(cost_s).ravel()]
    solved = linprog(
        np.eye(cost_s.size + 1)[-1], loads, np.zeros(devices), whole, np.ones(units), bounds=[*most, (0, None)]
    )
    return solved.fun * scale_s


def random_costs(seed):
    """GPUs that are alike, alike but for what one of them alone runs, or all different, and a device beside them that
    runs other units: at a tenth of the speed, for next to nothing, or for nothing.
    """
    rng = np.random.default_rng(seed)
    units, gpus = int(rng.integers(5, 60)), int(rng.integers(1, 6))
    cost_s = np.repeat(rng.lognormal(0, 1, (units, 1)), gpus + 1, axis=1)
    cost_s[:, gpus] *= (10.0, 1e-7, 0.0)[seed % 3]
    able = rng.random(units)
    cost_s[able < 0.7, gpus] = np.inf
    cost_s[able > 0.9, :gpus] = np.inf
    if seed % 2:
        cost_s[:gpus] = np.where(np.eye(gpus, gpus + 1, dtype=bool), cost_s[:gpus], np.inf)
        cost_s[np.arange(gpus), np.arange(gpus)] = rng.uniform(0, 2, gpus)
    if seed % 5 == 0:
        cost_s[:, :gpus] *= rng.lognormal(0, 0.5, (units, gpus))
    return cost_s


@pytest.mark.parametrize("seed", range(30))
def test_the_bound_is_near_the_least_largest_load(seed):
    cost_s = random_costs(seed)
    found_s, weights = divided_work(cost_s)
    assert 0.85 * least_s(cost_s) <= found_s <= least_s(cost_s) * (1 + 1e-6)
    assert weights.sum() == pytest.approx(1) and (weights > 0).all()
    assert (cost_s * weights).min(axis=1).sum() == pytest.approx(found_s)


COST = st.one_of(st.sampled_from((0.0, 1e-12, 1e-3, 1.0, 1.0, np.inf)), st.floats(0, 1e6))


@given(st.data(), st.integers(1, 5), st.integers(1, 3))
def test_no_division_of_all_has_a_smaller_largest_load(data, units, devices):
    row = st.lists(COST, min_size=devices, max_size=devices).filter(lambda row: min(row) < np.inf)
    cost_s = np.array(data.draw(st.lists(row, min_size=units, max_size=units)))
    found_s, _ = divided_work(cost_s)
    loads = []
    for placement in product(range(devices), repeat=units):
        taken = cost_s[np.arange(units), placement]
        if np.isfinite(taken).all():
            loads.append(np.bincount(placement, taken, devices).max())
    assert 0 <= found_s <= min(loads) * (1 + 1e-12)


def with_a_cpu(cpu_s, objective):
    """Eight GPUs for 800 ops, and a CPU for one op of `cpu_s`."""
    ops = (*(Op(f"v{i}", cost_s={"gpu": 1e-3}) for i in range(800)), Op("input", cost_s={"cpu": cpu_s}))
    devices = (*(Device(f"gpu:{i}", "gpu") for i in range(8)), Device("cpu", "cpu"))
    graph = OpGraph("g", ops, (Edge(800, 0, 0),))
    return Problem(graph, Topology(devices, (Link("*", "*", 0.0, 1e9),)), objective)


@pytest.mark.parametrize("objective", ["makespan", "max-load"])
@pytest.mark.parametrize("cpu_s", [1e-6, 0.0])
def test_a_device_that_runs_only_cheap_ops_takes_no_work_from_the_others(cpu_s, objective):
    problem = with_a_cpu(cpu_s, objective)
    assert 0.099 <= lower_bound(problem) <= 0.1 + cpu_s
    proven_s = (np.array(problem.unit_cost_s)[None] * tree_of(problem).weights[:, None]).min(axis=2).sum(axis=1)
    assert proven_s.max() >= 0.099
