"""TensorFlow's transfer rows as transfers of a Timeline."""

from __future__ import annotations

import pytest

from experiments.jobs.search.timelines import measured_timeline, one_trace
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from placer.profile.step_trace import TracedOp, TracedStep
from surrogate.simulate.simulator import Simulator

GRAPH = OpGraph("pair", (Op("net/a", "X", {"cpu": 1.0}), Op("b", "X", {"cpu": 1.0})), (Edge(0, 1, 3072),))
TOPOLOGY = Topology((Device("p", "cpu"), Device("q", "cpu")))
LABEL = "[{}] [80.84Mb/s] edge_12_{} from /job:worker/replica:0/task:0/device:CPU:0 to /job:worker/replica:0/task:1"


def traced(size, name):
    ops = (
        TracedOp("net/a", "X", "p", 0.0, 1.0),
        TracedOp("b", "X", "q", 1.5, 2.0),
        TracedOp("_send", "", "p", 1.0, 1.0),
    )
    return TracedStep(ops, (TracedOp(LABEL.format(size, name), "RecvTensor", "q", 1.0, 1.5),))


def test_ops_and_transfers_are_drawn_like_a_prediction():
    timeline = measured_timeline(GRAPH, TOPOLOGY, (0, 1), traced("3072B", "net/a"))
    (crossed,) = timeline.transfers
    assert (crossed.src, crossed.dst, crossed.link_bytes) == (0, 1, 3072)
    assert timeline.makespan_s == 2.0


def test_sizes_come_in_units():
    (crossed,) = measured_timeline(GRAPH, TOPOLOGY, (0, 1), traced("1.5MB", "net/a")).transfers
    assert crossed.link_bytes == 1.5 * 2**20


def test_an_input_of_the_step_is_no_transfer_of_the_graph():
    assert measured_timeline(GRAPH, TOPOLOGY, (0, 1), traced("1.5MB", "_recv_x_0")).transfers == ()


def test_what_a_mapping_adds_is_a_send_of_the_op_or_left_out():
    added = (
        TracedOp("net/a/cut_3_send", "_Send", "p", 1.0, 1.25),
        TracedOp("net/a/cut_3_recv", "_Recv", "q", 0.0, 1.5),
        TracedOp("b/gate", "NoOp", "q", 1.5, 1.5),
    )
    step = traced("3072B", "net/a")
    timeline = measured_timeline(GRAPH, TOPOLOGY, (0, 1), TracedStep(step.ops + added, step.transfers))
    assert [(span.work, span.op, span.device) for span in timeline.spans] == [
        ("op", 0, 0),
        ("send", 0, 0),
        ("op", 1, 1),
    ]


LINKED = Topology(TOPOLOGY.devices, (Link("*", "*", 0.5, 1e9),))


def test_one_trace_holds_the_predicted_and_the_measured_step():
    predicted = Simulator(GRAPH, LINKED).timeline((0, 1))
    trace = one_trace(predicted, measured_timeline(GRAPH, LINKED, (0, 1), traced("3072B", "net/a")))
    events = trace["traceEvents"]
    assert {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"} == {
        1: "predicted",
        2: "measured",
    }
    tracks = {(e["pid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"}
    assert tracks == {(pid, name) for pid in (1, 2) for name in ("p", "q", "p -> q")}
    ends = {pid: max(e["ts"] + e["dur"] for e in events if e["ph"] == "X" and e["pid"] == pid) for pid in (1, 2)}
    assert ends == {1: pytest.approx(2.5e6, rel=1e-5), 2: 2e6}


CARD = Topology((Device("gpu:0", "gpu"), Device("cpu:0", "cpu")))


def test_on_a_gpu_a_span_is_the_kernels_and_what_has_none_is_the_hosts():
    ops = (
        TracedOp("net/a", "X", "cpu:0", 0.0, 1.0),
        TracedOp("b", "X", "gpu:0", 2.0, 5.0, launch_s=0.5, kernel_s=2.5),
    )
    copied = TracedOp("[4096B] edge_0_net/a from cpu:0 to gpu:0", "MemcpyH2D", "gpu:0", 1.0, 2.0)
    timeline = measured_timeline(GRAPH, CARD, (1, 0), TracedStep(ops, (copied,), kernel_s=2.5))
    assert timeline.as_text(1.0) == "\n".join(["gpu:0 |..bbb|", "cpu:0 |n....|", "cpu:0 -> gpu:0 |.n...|"])
    hosted = TracedStep((*ops, TracedOp("b", "X", "gpu:0", 0.0, 4.0)), (), kernel_s=2.5)
    assert len(measured_timeline(GRAPH, CARD, (1, 0), hosted).spans) == 2
    assert len(measured_timeline(GRAPH, CARD, (1, 0), TracedStep(hosted.ops, ())).spans) == 3
