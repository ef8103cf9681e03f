"""Mappings: total, valid, immutable, equal by what they place where."""

import pytest

from placer.graph.mapping import Mapping, MappingError
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology

GRAPH = OpGraph(
    "g",
    (
        Op("a", cost_s={"cpu": 1.0}, memory_bytes=6, colocate="w"),
        Op("b", cost_s={"cpu": 1.0, "gpu": 1.0}, memory_bytes=4),
        Op("c", cost_s={"cpu": 1.0}, colocate="w"),
    ),
    (Edge(0, 1, 1), Edge(1, 2, 1)),
)
TOPOLOGY = Topology(
    (Device("cpu:0", "cpu", 10), Device("cpu:1", "cpu", 5), Device("gpu:0", "gpu")), (Link("*", "*", 0, 1),)
)


def test_by_name_and_back():
    mapping = Mapping.of(GRAPH, TOPOLOGY, {"c": "cpu:0", "a": "cpu:0", "b": "gpu:0"})
    assert mapping.devices == (0, 2, 0)
    assert list(mapping.assignment.items()) == [("a", "cpu:0"), ("b", "gpu:0"), ("c", "cpu:0")]
    assert mapping.memory_bytes == (6, 0, 4)


def test_equal_when_they_place_alike():
    one = Mapping(GRAPH, TOPOLOGY, (0, 2, 0))
    assert one == Mapping.of(GRAPH, TOPOLOGY, {"a": "cpu:0", "b": "gpu:0", "c": "cpu:0"})
    assert one != Mapping.single(GRAPH, TOPOLOGY, 0)
    assert Mapping.single(GRAPH, TOPOLOGY, 0).is_single


@pytest.mark.parametrize(
    ("devices", "headroom", "says"),
    [
        ((0, 0), 0.0, "2 ops; the graph has 3"),
        ((0, 0, 7), 0.0, "device 7"),
        ((2, 2, 2), 0.0, "cannot run on 'gpu:0'"),
        ((0, 0, 1), 0.0, "colocated"),
        ((1, 2, 1), 0.0, "would hold 6 bytes of its 5"),
        ((0, 0, 0), 0.1, "would hold 10 bytes of its 10"),
    ],
)
def test_mappings_that_cannot_be_are_refused(devices, headroom, says):
    with pytest.raises(MappingError, match=says):
        Mapping(GRAPH, TOPOLOGY, devices, headroom)


def test_a_partial_mapping_is_refused():
    with pytest.raises(MappingError, match="leaves out 2 of 3"):
        Mapping.of(GRAPH, TOPOLOGY, {"a": "cpu:0"})


def test_fractions_of_bytes_fill_a_device_exactly_in_any_order():
    a, b, c = sizes = (104857.6, 209715.2, 314572.8)
    assert a + b + c > c + b + a
    ops = tuple(Op(f"v{i}", cost_s={"cpu": 1.0}, memory_bytes=size) for i, size in enumerate(sizes))
    full = Topology((Device("cpu:0", "cpu", memory_bytes=c + b + a),))
    assert Mapping(OpGraph("g", ops, ()), full, (0, 0, 0)).memory_bytes == (a + b + c,)


def test_a_notebook_shows_what_each_device_gets():
    shown = Mapping(GRAPH, TOPOLOGY, (0, 2, 0))._repr_html_()
    assert "<tr><td>cpu:0</td><td>2</td><td>6 B</td></tr>" in shown
    assert "<tr><td>gpu:0</td><td>1</td>" in shown and "<b>g</b>" in shown
