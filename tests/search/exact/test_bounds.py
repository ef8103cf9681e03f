"""No mapping beats the bound; and where work divides evenly, or a path is all there is, the bound is met."""

from functools import partial
from itertools import chain, islice, repeat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from search.exact.bounds import lower_bound
from search.problem.problem import Problem
from search.problem.searcher import fitting_placements


def optimum(problem):
    """The least objective of all that fits; infinity where nothing fits or nothing can be simulated."""
    placements = list(fitting_placements(problem))
    return float(problem.predict_many(placements).min()) if placements else float("inf")


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_mapping_of_all_beats_the_bound(enumerable, data):
    problem = data.draw(enumerable)
    if problem is not None:
        assert 0 <= lower_bound(problem) <= optimum(problem)


def test_no_mapping_beats_the_bound(problem):
    bound = lower_bound(problem)
    assert bound > 0
    assert all(problem.predict(p) >= bound for p in islice(fitting_placements(problem), 500))


def test_the_bound_is_met_by_towers_side_by_side(towers):
    # A fork and a join of 0.01 s around eight heavy ops on two devices; every other way in and out is longer.
    assert lower_bound(towers) == pytest.approx(4.02)
    assert lower_bound(towers) <= towers.predict((0, 0, 0, 0, 0, 1, 1, 1, 1, 0))


def test_devices_of_different_speed_share_by_speed(towers):
    fast = type(towers.topology.devices[1])("cpu:1", "cpu", speed=3.0)
    topology = type(towers.topology)((towers.topology.devices[0], fast), towers.topology.links)
    assert lower_bound(Problem(towers.graph, topology, "max-load")) == pytest.approx(8.02 / 4)


def apart(objective, **link):
    """A chain whose ops run on different devices only."""
    ops = (Op("a", cost_s={"x": 1.0}), Op("b", cost_s={"y": 2.0}))
    devices = tuple(Device(k, k, ingress_bytes_per_s=2.0, egress_bytes_per_s=1.0) for k in "xy")
    link = {"latency_s": 3.0, "bandwidth_bytes_per_s": 2.0, **link}
    graph = OpGraph("g", ops, (Edge(0, 1, 8), Edge(0, 1, 4, 1)))
    return Problem(graph, Topology(devices, (Link("*", "*", **link),)), objective)


@pytest.mark.parametrize("link", [{}, {"send_s": 5.0}, {"receive_s": 5.0}, {"send_s_per_byte": 1.0, "receive_s": 0.5}])
def test_a_chain_that_must_cross_meets_the_bound(link):
    problem = apart("makespan", **link)
    assert lower_bound(problem) == pytest.approx(problem.predict((0, 1)))


def test_tensors_that_must_cross_are_load_of_both_ends():
    problem = apart("max-load")
    assert lower_bound(problem) == pytest.approx(1.0 + 12 / 1.0) == problem.predict((0, 1))


def test_units_too_big_to_share_a_device_must_cross():
    ops = tuple(Op(name, cost_s={"x": 1.0}, memory_bytes=3) for name in "ab")
    devices = tuple(Device(f"x{i}", "x", 5) for i in range(2))
    problem = Problem(OpGraph("g", ops, (Edge(0, 1, 4),)), Topology(devices, (Link("*", "*", 1.0, 2.0),)))
    assert lower_bound(problem) == pytest.approx(1 + 3 + 1)


def test_a_fast_device_that_holds_half_leaves_the_rest_to_the_slow_one():
    # Memory aside the fast one would do 9 of 10 ops; it holds 5.
    ops = tuple(Op(f"v{i}", cost_s={"slow": 9.0, "fast": 1.0}, memory_bytes=1) for i in range(10))
    devices = (Device("slow", "slow"), Device("fast", "fast", 5))
    problem = Problem(OpGraph("g", ops, ()), Topology(devices), "max-load")
    assert lower_bound(problem) == pytest.approx(45, rel=0.02)
    assert lower_bound(problem) <= optimum(problem) == 45


def test_ops_between_a_long_way_in_and_a_long_way_out_share_what_is_left():
    # in -> eight middle ops of 1 s -> out: the ends take 10 s each, whoever runs them.
    ops = [
        Op("in", cost_s={"x": 10.0}),
        *(Op(f"m{i}", cost_s={"x": 1.0}) for i in range(8)),
        Op("out", cost_s={"x": 10.0}),
    ]
    edges = [e for i in range(1, 9) for e in (Edge(0, i, 0), Edge(i, 9, 0))]
    topology = Topology(tuple(Device(f"x{i}", "x") for i in range(4)), (Link("*", "*", 0.0, 1.0),))
    problem = Problem(OpGraph("g", tuple(ops), tuple(edges)), topology)
    assert lower_bound(problem) == pytest.approx(10 + 8 / 4 + 10)


def test_ways_ahead_and_behind_are_those_of_the_reversed_graph():
    from search.problem.longest_paths import heads, path_tables, tails

    problem = apart("makespan", send_s=1.0)
    ways = path_tables(problem.simulator.tables, problem.limits, problem.graph.order)
    through_s = heads(ways) + ways.cost_s + tails(ways)
    assert np.unique(through_s[np.isfinite(through_s)]).tolist() == pytest.approx([problem.predict((0, 1))])


def test_a_bound_that_is_not_finished_is_one_all_the_same(problem):
    """It is asked whether time is up again and again, and whenever that is the answer, no mapping beats the bound."""
    whole, asked = lower_bound(problem), 0

    def counting():
        nonlocal asked
        asked += 1
        return False

    lower_bound(problem, counting)
    assert asked > 5 or problem.objective == "max-load"  # equal devices divide all work at once
    assert asked
    for most in (0, 1, asked // 2, asked - 1):
        assert 0 < lower_bound(problem, partial(next, chain(repeat(False, most), repeat(True)))) <= whole
