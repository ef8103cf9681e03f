"""The simulator, held against schedules drawn by hand and against what is true of every schedule."""

from itertools import pairwise
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.errors import BadInputError
from placer.graph.mapping import Mapping
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from surrogate.costs.cost_matrix import cost_matrix
from surrogate.simulate import reference
from surrogate.simulate.max_load import loads
from surrogate.simulate.priority import upward_rank, weighted_out_degree
from surrogate.simulate.reference import Run
from surrogate.simulate.simulator import Simulator, simulate

# A byte takes a second, so that a picture can be drawn.
SECOND_A_BYTE = Link("*", "*", latency_s=0, bandwidth_bytes_per_s=1)


def machine(count=2, contention="none", **link):
    fields = {"latency_s": 0, "bandwidth_bytes_per_s": 1, **link}
    devices = tuple(Device("xyz"[d], "cpu") for d in range(count))
    return Topology(devices, (Link("*", "*", **fields),), contention)


def graph(costs, edges=()):
    """costs: {name: seconds}; edges: (src, dst, bytes) or (src, dst, bytes, output_index), by name."""
    index = {name: i for i, name in enumerate(costs)}
    ops = tuple(Op(name, cost_s={"cpu": cost_s}) for name, cost_s in costs.items())
    return OpGraph("g", ops, tuple(Edge(index[s], index[d], *rest) for s, d, *rest in edges))


def drawn(graph, topology, devices, schedule="rank"):
    costs = cost_matrix(graph, topology)
    mapping = Mapping(graph, topology, devices)
    return simulate(graph, costs, mapping, schedule).as_text(unit_s=1.0)


def picture(text):
    return dedent(text).strip()


def test_a_transfer_overlaps_compute():
    g = graph({"a": 2, "b": 3, "c": 2}, [("a", "c", 2), ("a", "b", 0)])
    assert drawn(g, machine(), (0, 0, 1)) == picture("""
        x |aabbb.|
        y |....cc|
        x -> y |..aa..|
        """)


def test_a_tensor_crosses_to_a_device_once():
    g = graph({"a": 1, "b": 1, "c": 1}, [("a", "b", 2), ("a", "c", 2)])
    assert drawn(g, machine(), (0, 1, 1)) == picture("""
        x |a....|
        y |...bc|
        x -> y |.aa..|
        """)


def test_two_outputs_are_two_tensors():
    g = graph({"a": 1, "b": 1, "c": 1}, [("a", "b", 2), ("a", "c", 3, 1)])
    text = drawn(g, machine(contention="link"), (0, 1, 1))
    assert text == picture("""
        x |a......|
        y |...b..c|
        x -> y |.aaaaa.|
        """)


def test_links_queue_in_the_order_of_op_and_edge():
    g = graph({"a": 1, "b": 1, "c": 1, "d": 1}, [("a", "c", 2), ("b", "d", 2)])
    both = (0, 1, 2, 2)
    assert drawn(g, machine(3, "link"), both) == picture("""
        x |a....|
        y |b....|
        z |...cd|
        x -> z |.aa..|
        y -> z |.bb..|
        """)
    assert drawn(g, machine(3, "port"), both) == picture("""
        x |a.....|
        y |b.....|
        z |...c.d|
        x -> z |.aa...|
        y -> z |...bb.|
        """)


@pytest.mark.parametrize("contention", ["link", "port"])
def test_a_long_queue_is_not_gone_through_at_each_instant(contention, monkeypatch):
    """Each of 300 ops on x has a tensor for y, whose link is slow; of the pair only the first may start."""
    costs = {f"v{i}": 1.0 for i in range(300)} | {f"w{i}": 0.0 for i in range(300)}
    many = graph(costs, [(f"v{i}", f"w{i}", 50) for i in range(300)])
    looked = 0

    class Counted(Run):
        def _holds(self, crossing):
            nonlocal looked
            looked += 1
            return super()._holds(crossing)

    monkeypatch.setattr(reference, "Run", Counted)
    Simulator(many, machine(2, contention)).timeline([0] * 300 + [1] * 300)
    assert looked < 5 * 600


def test_sending_and_receiving_keep_both_ends_busy():
    g = graph({"a": 1, "b": 2, "c": 1}, [("a", "c", 1)])
    # y would run b first; the tensor arrives meanwhile and is received before any op.
    assert drawn(g, machine(send_s=2, receive_s=1), (0, 1, 1)) == picture("""
        x |a>>...|
        y |bb..<c|
        x -> y |...a..|
        """)


def test_a_device_sends_one_tensor_after_another_and_only_then_computes():
    g = graph({"a": 1, "b": 1, "c": 1, "d": 1}, [("a", "b", 1), ("a", "c", 1), ("a", "d", 0)])
    assert drawn(g, machine(3, send_s=1), (0, 1, 2, 0)) == picture("""
        x |a>>d.|
        y |...b.|
        z |....c|
        x -> y |..a..|
        x -> z |...a.|
        """)


def test_what_arrived_is_received_before_any_op_runs():
    g = graph({"a": 1, "b": 2, "c": 3, "d": 1}, [("a", "d", 0)])
    assert drawn(g, machine(receive_s=1), (0, 1, 1, 1), "fifo") == picture("""
        x |a......|
        y |bb<cccd|
        """)


def test_rank_takes_the_longest_way_first_and_fifo_the_first_come():
    g = graph({"a": 1, "b": 1, "c": 1, "d": 4}, [("a", "b", 0), ("a", "c", 0), ("c", "d", 0)])
    assert drawn(g, machine(), (0, 0, 0, 1), "rank") == picture("""
        x |acb...|
        y |..dddd|
        """)
    assert drawn(g, machine(), (0, 0, 0, 1), "fifo") == picture("""
        x |abc....|
        y |...dddd|
        """)


def test_donf_takes_first_what_sets_most_free():
    g = graph({"a": 1, "b": 1, "c": 1, "d": 1}, [("b", "c", 0), ("b", "d", 0), ("a", "d", 0)])
    # WOD(a) = 1/2, WOD(b) = 1/1 + 1/2.
    assert weighted_out_degree(g) == [0.5, 1.5, 0, 0]
    assert drawn(g, machine(1), (0, 0, 0, 0), "donf") == "x |bacd|"
    assert drawn(g, machine(1), (0, 0, 0, 0), "fifo") == "x |abcd|"


def test_events_of_one_instant_happen_before_any_device_chooses():
    # a and z end together, and z's tensor takes no time: x knows of c, the longer way, when it chooses.
    g = graph({"a": 1, "z": 1, "b": 1, "c": 1, "d": 3}, [("a", "b", 0), ("z", "c", 0), ("c", "d", 0)])
    assert drawn(g, machine(), (0, 1, 0, 0, 1)) == picture("""
        x |acb..|
        y |z.ddd|
        """)


def test_what_work_of_no_length_sets_free_comes_after_the_choice():
    # At second 1 x takes b while y runs z, which takes no time; c is ready a moment too late.
    g = graph({"a": 1, "z": 0, "b": 1, "c": 1, "d": 3}, [("a", "z", 0), ("z", "c", 0), ("c", "d", 0)])
    assert drawn(g, machine(), (0, 1, 0, 0, 1)) == picture("""
        x |abc...|
        y |...ddd|
        """)


def test_upward_rank_is_cost_and_transfer_to_the_end():
    g = graph({"a": 2, "b": 3, "c": 4}, [("a", "b", 5), ("a", "c", 1)])
    topology = machine()
    assert upward_rank(g, cost_matrix(g, topology), topology) == [2 + 5 + 3, 3, 4]


def test_a_missing_link_is_named_only_when_it_is_needed():
    g = graph({"a": 1, "b": 1}, [("a", "b", 1)])
    simulator = Simulator(g, Topology((Device("x", "cpu"), Device("y", "cpu"))))
    assert simulator.makespan((0, 0)) == 2
    assert simulator.makespan((0, 1)) == float("inf")
    with pytest.raises(BadInputError, match="no link x -> y"):
        simulator.timeline((0, 1))


def test_an_op_for_no_device_and_an_unknown_schedule_are_refused():
    with pytest.raises(BadInputError, match="can run on none of x"):
        cost_matrix(OpGraph("g", (Op("v", cost_s={"tpu": 1.0}),), ()), machine(1))
    with pytest.raises(BadInputError, match="none of rank, donf, fifo"):
        Simulator(graph({"a": 1}), machine(), "lifo")


def test_max_load_counts_a_tensor_once_per_sender_and_receiver():
    g = graph({"a": 1, "b": 1, "c": 1, "d": 1}, [("a", "b", 6), ("a", "c", 6), ("a", "d", 6)])
    rates = {"ingress_bytes_per_s": 2.0, "egress_bytes_per_s": 3.0}
    topology = Topology(tuple(Device(name, "cpu", **rates) for name in "xyz"))
    mapping = Mapping(g, topology, (0, 1, 1, 2))
    # x: a and 6/3 to send; y: b, c and 6/2 to receive; z: d and 6/2.
    assert max(loads(g, cost_matrix(g, topology).tolist(), topology, mapping.devices)) == max(1 + 2, 2 + 3, 1 + 3)


@st.composite
def cases(draw):
    """A random graph, topology and mapping."""
    n = draw(st.integers(1, 12))
    number = st.integers(0, 4)
    ops = tuple(Op(f"v{i}", cost_s={"cpu": float(draw(number))}) for i in range(n))
    pairs = [(u, v) for v in range(n) for u in range(v)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=20)) if pairs else []
    edges = tuple(Edge(u, v, draw(number), draw(st.integers(0, 1))) for u, v in chosen)
    count = draw(st.integers(1, 3))
    busy = {"send_s": draw(number), "receive_s": draw(number)}
    contention = draw(st.sampled_from(("none", "link", "port")))
    devices = tuple(draw(st.integers(0, count - 1)) for _ in range(n))
    topology = machine(count, contention, latency_s=draw(number), **busy)
    return OpGraph("g", ops, edges), topology, devices, draw(st.sampled_from(("rank", "donf", "fifo")))


def critical_path_s(g):
    end_s = [0.0] * len(g)
    for v in g.order:
        end_s[v] = g.ops[v].cost_s["cpu"] + max((end_s[e.src] for e in g.in_edges[v]), default=0.0)
    return max(end_s)


@settings(max_examples=150, deadline=None)
@given(cases())
def test_a_makespan_lies_between_the_critical_path_and_everything_in_a_row(case):
    g, topology, devices, schedule = case
    timeline = Simulator(g, topology, schedule).timeline(devices)
    in_a_row_s = sum(timeline.busy_s) + sum(t.end_s - t.start_s for t in timeline.transfers)
    assert critical_path_s(g) <= timeline.makespan_s <= in_a_row_s


@settings(max_examples=150, deadline=None)
@given(cases())
def test_every_schedule_keeps_the_rules(case):
    g, topology, devices, schedule = case
    simulator = Simulator(g, topology, schedule)
    timeline = simulator.timeline(devices)
    assert simulator.makespan(devices) == timeline.makespan_s
    ops = {span.op: span for span in timeline.spans if span.work == "op"}
    assert set(ops) == set(range(len(g)))
    for d in range(len(topology)):
        spans = [span for span in timeline.spans if span.device == d]
        assert all(a.end_s <= b.start_s for a, b in pairwise(spans))
    crossed = {(t.op, t.output_index, t.dst): t for t in timeline.transfers}
    assert len(crossed) == len(timeline.transfers)
    for e in g.edges:
        way = crossed.get((e.src, e.output_index, devices[e.dst]))
        assert (way is None) == (devices[e.src] == devices[e.dst])
        assert ops[e.dst].start_s >= (ops[e.src].end_s if way is None else way.end_s)
    if topology.contention == "link":
        for pair in {(t.src, t.dst) for t in timeline.transfers}:
            queue = [t for t in timeline.transfers if (t.src, t.dst) == pair]
            assert all(a.end_s <= b.start_s for a, b in pairwise(queue))


@settings(max_examples=100, deadline=None)
@given(cases(), st.randoms(use_true_random=False))
def test_equal_devices_may_be_renamed(case, chance):
    g, topology, devices, schedule = case
    names = list(range(len(topology)))
    chance.shuffle(names)
    simulator = Simulator(g, topology, schedule)
    renamed = tuple(names[d] for d in devices)
    if topology.contention == "none":
        assert simulator.makespan(renamed) == simulator.makespan(devices)
    costs = cost_matrix(g, topology)
    assert np.isclose(*(max(loads(g, costs.tolist(), topology, m)) for m in (devices, renamed)))
