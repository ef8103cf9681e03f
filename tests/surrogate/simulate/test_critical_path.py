"""The critical chain: it ends with the step, and covers it where nothing idles."""

import pytest

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from surrogate.simulate.critical_path import critical_chain
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
    return [graph.ops[v].name for v in critical_chain(Simulator(graph, machine(**link)).timeline(devices))]


def test_on_one_device_every_op_is_in_it():
    assert sorted(names((0, 0, 0, 0))) == list("abcd")


def test_the_short_branch_is_not():
    """
    x |abbbbbd|
    y |   cc  |
    """
    assert names((0, 0, 1, 0)) == ["d", "b", "a"]


def test_both_ends_of_a_late_crossing_are_in_it():
    """The long branch is away: d waits for its tensor.

    x |acc       d|
    y |   bbbbb   |
    """
    assert names((0, 1, 0, 0)) == ["d", "b", "a"]


@pytest.mark.parametrize("devices", [(0, 1, 0, 0), (0, 0, 1, 1), (1, 0, 1, 0), (0, 1, 1, 0)])
@pytest.mark.parametrize("link", [{}, {"send_s": 0.3, "receive_s": 0.4}])
def test_costs_on_it_never_exceed_the_step(devices, link):
    graph = fork()
    timeline = Simulator(graph, machine(**link)).timeline(devices)
    chain = critical_chain(timeline)
    assert len(set(chain)) == len(chain)
    assert sum(graph.ops[v].cost_s["cpu"] for v in chain) <= timeline.makespan_s + 1e-12
    assert max(range(4), key=lambda v: max(s.end_s for s in timeline.spans if s.op == v)) == chain[0]
