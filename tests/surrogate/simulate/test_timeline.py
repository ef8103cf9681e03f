"""Timelines: what each device holds, and the trace that Perfetto opens."""

import json

from hypothesis import given
from hypothesis import strategies as st

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from surrogate.simulate.memory_peak import Stay, peaks
from surrogate.simulate.simulator import Simulator
from surrogate.simulate.timeline import Rows, Span, Timeline

TOPOLOGY = Topology((Device("x", "cpu"), Device("y", "cpu")), (Link("*", "*", 0, 10),))


def simulated(devices, edges, count=4):
    ops = tuple(Op("abcd"[i], cost_s={"cpu": 1.0}, memory_bytes=100) for i in range(count))
    return Simulator(OpGraph("g", ops, edges), TOPOLOGY).timeline(devices)


def test_a_tensor_lives_until_its_last_consumer_has_ended():
    timeline = simulated((0, 0, 0, 0), (Edge(0, 1, 1), Edge(0, 2, 1), Edge(1, 3, 10), Edge(2, 3, 20)))
    # a's byte goes when c ends, which is when c's 20 bytes come: for a moment all three are alive.
    assert timeline.memory_peak_bytes == (400 + 1 + 10 + 20, 0)


def test_a_tensor_lives_on_both_sides_of_a_link():
    timeline = simulated((0, 1), (Edge(0, 1, 10),), count=2)
    assert timeline.memory_peak_bytes == (110, 110)


def test_what_comes_counts_before_what_goes():
    assert peaks([1, 0], [Stay(0, 5, 0.0, 1.0), Stay(0, 7, 1.0, 2.0)]) == (13, 0)


def test_ops_that_take_no_time_hold_no_more_than_two_tensors_of_a_chain():
    ops = (Op("a", cost_s={"cpu": 1.0}), *(Op(f"z{i}", cost_s={"cpu": 0.0}) for i in range(50)))
    chain = OpGraph("chain", ops, tuple(Edge(i, i + 1, 8) for i in range(50)))
    timeline = Simulator(chain, TOPOLOGY).timeline((0,) * 51)
    assert timeline.memory_peak_bytes == (16, 0)


def test_trace_has_a_track_per_device_and_per_link():
    timeline = simulated((0, 1, 0, 1), (Edge(0, 1, 10), Edge(2, 3, 10)))
    trace = json.loads(json.dumps(timeline.to_trace()))
    names = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert list(names.values()) == ["x", "y", "x -> y"]
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert {e["name"] for e in slices if names[e["tid"]] == "x -> y"} == {"a", "c"}
    assert max(e["ts"] + e["dur"] for e in slices) == timeline.makespan_s * 1e6


def test_slices_of_one_track_never_overlap():
    # Both transfers leave x at second 1 and nothing queues: the second goes to a track of its own.
    timeline = simulated((0, 1, 1, 0), (Edge(0, 1, 10), Edge(0, 2, 20, 1)))
    trace = timeline.to_trace()
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"]
    assert names == ["x", "y", "x -> y", "x -> y (2)"]


def test_ops_that_overlap_on_one_device_get_tracks_of_their_own():
    # A device with several threads, as measured: b starts before a has ended, c after.
    timeline = simulated((0, 0, 0), (), count=3)
    spans = (Span(0, "op", 0, 0.0, 2.0), Span(0, "op", 1, 1.0, 3.0), Span(0, "op", 2, 2.0, 3.0))
    trace = Timeline(timeline.graph, TOPOLOGY, (0, 0, 0), spans, ()).to_trace("measured", pid=2)
    names = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    at = {e["name"]: names[e["tid"]] for e in trace["traceEvents"] if e["ph"] == "X"}
    assert at == {"a": "x", "b": "x (2)", "c": "x"}
    assert {e["pid"] for e in trace["traceEvents"]} == {2}


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), max_size=30))
def test_each_thing_is_in_the_first_row_that_is_free(lasting):
    rows, free_s = Rows(), []
    for start_s, seconds in sorted(lasting):
        first = next((row for row, until in enumerate(free_s) if until <= start_s), len(free_s))
        free_s[first : first + 1] = [start_s + seconds]
        assert rows.take(start_s, start_s + seconds) == first
    assert len(rows) == len(free_s)
