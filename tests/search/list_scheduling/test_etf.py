"""ETF: what can start first comes next, and nothing goes where it cannot run or does not fit."""

import numpy as np

from placer.graph.op_graph import Edge, Op, OpGraph
from search.initial.starts import starts
from search.list_scheduling.etf import etf_placement
from search.list_scheduling.heft import heft_placement
from search.problem.problem import Problem
from search.problem.searcher import never


def graph(costs, edges=()):
    ops = tuple(Op(name, cost_s={"gpu": cost_s}) for name, cost_s in costs.items())
    place = {name: i for i, name in enumerate(costs)}
    return OpGraph("g", ops, tuple(Edge(place[u], place[v], 10) for u, v in edges))


def devices_of(problem, placement):
    devices = problem.devices(placement)
    return {op.name: devices[v] for v, op in enumerate(problem.graph.ops)}


def test_of_equal_starts_the_longest_comes_first(build):
    """
    0 |aaaadd|
    1 |bbbccc|
    """
    problem = Problem(graph({"a": 4.0, "b": 3.0, "c": 2.9, "d": 2.0}), build.machine("gpu", "gpu"))
    assert devices_of(problem, etf_placement(problem)) == {"a": 0, "b": 1, "c": 1, "d": 0}


def test_an_idle_device_takes_what_is_ready_though_it_ends_later_there(build):
    """The gpu of half the speed runs d, which HEFT leaves to wait for the fast one.

    fast |aaaac  |
    slow |dddddd |
    """
    topology = build.machine("gpu", "gpu")
    names = topology.names
    ops = tuple(
        Op(name, cost_s={names[0]: fast, names[1]: late})
        for name, fast, late in (("a", 4.0, 9.0), ("c", 0.2, 0.3), ("d", 1.5, 6.0))
    )
    slow = Problem(OpGraph("g", ops, (Edge(0, 1, 10),)), topology)
    assert devices_of(slow, etf_placement(slow))["d"] == 1
    assert devices_of(slow, heft_placement(slow))["d"] == 0


def test_the_placement_fits_and_every_unit_can_run(problem, tight):
    for each in (problem, tight):
        placement = etf_placement(each)
        assert each.fits(placement)
        assert each.limits.feasible[np.arange(len(placement)), placement].all()


def test_searches_start_from_it_if_links_make_no_work(build):
    for link, is_start in (({}, True), ({"send_s": 0.5, "receive_s": 0.5}, False)):
        problem = Problem(build.layered(3, layers=8, width=4), build.machine("gpu", "gpu", "cpu", **link))
        assert (etf_placement(problem) in starts(problem, never)) == is_start
