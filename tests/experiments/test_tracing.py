"""TensorFlow's transfer rows as transfers of a Timeline."""

from __future__ import annotations

from experiments.tracing import measured_timeline
from placer.graph import Edge, Op, OpGraph
from placer.profiler import TracedOp, TracedStep
from placer.topology import Device, Topology

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
