"""The critical path: it ends with the step, and covers it where nothing idles."""

import numpy as np
import pytest

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from surrogate.simulate.kernels.critical_path import critical_path
from surrogate.simulate.simulator import Simulator


def fork():
    """a feeds b (long) and c (short); d needs both."""
    ops = [Op(name, cost_s={"cpu": cost}) for name, cost in zip("abcd", (1.0, 5.0, 2.0, 1.0), strict=True)]
    return OpGraph("fork", tuple(ops), (Edge(0, 1, 10), Edge(0, 2, 10), Edge(1, 3, 10), Edge(2, 3, 10)))


def machine(**link):
    fields = {"latency_s": 0.5, "bandwidth_bytes_per_s": 10.0, **link}
    return Topology((Device("x", "cpu"), Device("y", "cpu")), (Link("*", "*", **fields),))


def names(devices, **link):
    graph = fork()
    simulator = Simulator(graph, machine(**link))
    end_s = np.zeros(4)
    for span in simulator.timeline(devices).spans:
        end_s[span.op] = max(end_s[span.op], span.end_s)
    path = np.empty(4, np.int32)
    count = critical_path(simulator.tables, np.array(devices, np.int32), end_s, path)
    return [graph.ops[v].name for v in path[:count]]


def test_on_one_device_every_op_is_on_it():
    assert sorted(names((0, 0, 0, 0))) == list("abcd")


def test_the_short_branch_is_not():
    """
    x |abbbbbd|
    y |   cc  |
    """
    assert names((0, 0, 1, 0)) == ["d", "b", "a"]


def test_both_ends_of_a_late_crossing_are_on_it():
    """The long branch is away: d waits for its tensor.

    x |acc       d|
    y |   bbbbb   |
    """
    assert names((0, 1, 0, 0)) == ["d", "b", "a"]


@pytest.mark.parametrize("devices", [(0, 1, 0, 0), (0, 0, 1, 1), (1, 0, 1, 0), (0, 1, 1, 0)])
@pytest.mark.parametrize("link", [{}, {"send_s": 0.3, "receive_s": 0.4}])
def test_it_begins_with_the_op_that_ends_last_and_has_none_twice(devices, link):
    path = names(devices, **link)
    assert path[0] == "d" and path[-1] == "a"
    assert len(set(path)) == len(path)


def test_ops_that_take_no_time_end_it_in_finite_time():
    ops = tuple(Op(f"v{i}", cost_s={"cpu": 0.0}) for i in range(6))
    graph = OpGraph("nothing", ops, tuple(Edge(i, i + 1, 0) for i in range(5)))
    tables = Simulator(graph, machine()).tables
    path = np.empty(6, np.int32)
    count = critical_path(tables, np.zeros(6, np.int32), np.zeros(6), path)
    assert 1 <= count <= 6 and len(set(path[:count].tolist())) == count
