"""PEFT and CPOP: the published example, the optimistic cost table by its definition, and Placer's own conditions."""

import math

import numpy as np
import pytest

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from search.list_scheduling.cpop import cpop, critical_device, critical_path, path_s
from search.list_scheduling.list_scheduler import repaired
from search.list_scheduling.peft import optimistic_cost_s, peft
from search.problem.problem import Problem


def plain_table(problem):
    """OCT by its definition, for graphs whose pairs share one tensor."""
    graph, costs, links = problem.graph, problem.costs, problem.simulator.reference.links
    devices = range(len(problem.topology))
    table = [[0.0] * len(devices) for _ in graph.ops]
    for v in reversed(graph.order):
        for d in devices:
            for e in graph.out_edges[v]:
                ways = []
                for at in devices:
                    cross_s = 0.0
                    if at != d:
                        link = links[d][at]
                        size = e.edge_bytes
                        cross_s = link.send_busy_s(size) + link.transfer_s(size) + link.receive_busy_s(size)
                    ways.append(table[e.dst][at] + costs[e.dst][at] + cross_s)
                table[v][d] = max(table[v][d], min(ways))
    return np.where(np.isfinite(costs), table, math.inf)


def test_the_table_is_that_of_the_definition(published):
    assert optimistic_cost_s(published) == pytest.approx(plain_table(published))


def test_the_table_counts_the_work_at_both_ends_of_a_link():
    ops = tuple(Op(name, cost_s={name: 1.0}) for name in "ab")
    topology = Topology((Device("a", "a"), Device("b", "b")), (Link("*", "*", 1.0, 1.0, send_s=2.0, receive_s=3.0),))
    problem = Problem(OpGraph("g", ops, (Edge(0, 1, 4),)), topology)
    assert optimistic_cost_s(problem)[0, 0] == 1.0 + 4.0 + 2.0 + 3.0 + 1.0


def test_the_published_critical_path_and_schedule(published):
    path = critical_path(published, path_s(published))
    assert [published.graph.ops[v].name for v in path] == ["n1", "n2", "n9", "n10"]
    assert critical_device(published, path) == 1
    assert cpop(published).makespan_s == 86
    assert {cpop(published).devices[v] for v in path} == {1}


def _placement(schedule, problem):
    return repaired(problem, schedule(problem))


def test_looking_ahead_pays_where_the_next_op_runs_on_one_device_only():
    # Finishing a second earlier on x would cost a dear crossing to y, where b has to run.
    ops = (Op("a", cost_s={"x": 1.0, "y": 2.0}), Op("b", cost_s={"y": 1.0}))
    topology = Topology((Device("x", "x"), Device("y", "y")), (Link("*", "*", 10.0, 1.0),))
    assert _placement(peft, Problem(OpGraph("g", ops, (Edge(0, 1, 0),)), topology)) == (1, 1)


def test_a_link_that_is_missing_is_not_walked_into():
    # From x there is no way to y.
    ops = (Op("a", cost_s={"x": 1.0, "y": 2.0}), Op("b", cost_s={"y": 1.0}))
    problem = Problem(OpGraph("g", ops, (Edge(0, 1, 0),)), Topology((Device("x", "x"), Device("y", "y"))))
    assert _placement(peft, problem) == (1, 1)


@pytest.mark.parametrize("schedule", [peft, cpop])
def test_no_device_holds_more_than_its_memory(tight, schedule):
    assert all(used <= 24 for used in tight.mapping(_placement(schedule, tight)).memory_bytes)
