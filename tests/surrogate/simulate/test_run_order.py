"""The run order: what it lists, and that it is a possible one."""

from hypothesis import given, settings
from hypothesis import strategies as st

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from surrogate.simulate.run_order import COVERED, run_order
from surrogate.simulate.simulator import Simulator

TWO = Topology((Device("x", "cpu"), Device("y", "cpu")), (Link("*", "*", 0.5, 1.0),))


def graph(costs, edges):
    ops = tuple(Op(f"op{i}", cost_s={"cpu": cost_s}) for i, cost_s in enumerate(costs))
    return OpGraph("g", ops, tuple(Edge(*edge) for edge in edges))


def test_heavy_ops_and_what_crosses_are_in_order_and_dust_is_not():
    # op0 (heavy) -> op1 (dust) -> op2 (heavy); op3 (dust, but its tensor crosses) -> op4 on the other device
    g = graph([10, 0.01, 10, 0.01, 10], [(0, 1, 1), (1, 2, 1), (3, 4, 1)])
    order = run_order(Simulator(g, TWO).timeline((0, 0, 0, 0, 1)))
    assert set(order) == {"op0", "op2", "op3", "op4"}
    assert order.index("op0") < order.index("op2")


def test_one_device_alone_needs_no_order():
    g = graph([1, 2], [(0, 1, 1)])
    assert run_order(Simulator(g, TWO).timeline((1, 1))) == []


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_op_is_listed_before_one_that_it_needs_and_most_work_is_listed(data):
    n = data.draw(st.integers(2, 12))
    costs = data.draw(st.lists(st.just(0.0) | st.floats(1e-9, 5), min_size=n, max_size=n))
    pairs = [(u, v) for u in range(n) for v in range(u + 1, n)]
    edges = [(u, v, 1) for u, v in data.draw(st.lists(st.sampled_from(pairs), unique=True, max_size=20))]
    devices = [0, 1, *data.draw(st.lists(st.integers(0, 1), min_size=n - 2, max_size=n - 2))]
    order = run_order(Simulator(graph(costs, edges), TWO).timeline(devices))
    place = {name: i for i, name in enumerate(order)}
    assert len(place) == len(order)
    reached = reachable(n, edges)
    for u, v in reached:
        if f"op{u}" in place and f"op{v}" in place:
            assert place[f"op{u}"] < place[f"op{v}"]
    assert sum(costs[int(name[2:])] for name in order) >= COVERED * sum(costs) * (1 - 1e-9)


def reachable(n, edges):
    """All (u, v) with a path from u to v."""
    found = {(u, v) for u, v, _ in edges}
    for w in range(n):
        found |= {(u, v) for u in range(n) for v in range(n) if (u, w) in found and (w, v) in found}
    return found
