"""Topologies: later links override earlier ones, and a missing one is named when it is needed."""

import math

import pytest

from placer.errors import BadInputError
from placer.graph.op_graph import Op
from placer.graph.topology import Device, Link, Topology

A, B = Device("a", "cpu"), Device("b", "gpu", speed=2.0)


def test_later_links_override_earlier_ones():
    topology = Topology((A, B), (Link("*", "*", 1, 1), Link("a", "*", 2, 1), Link("a", "b", 3, 1)))
    assert (topology.link(0, 1).latency_s, topology.link(1, 0).latency_s) == (3, 1)
    assert topology.table[0][0] is None


def test_a_missing_link_is_named():
    with pytest.raises(BadInputError, match="no link b -> a"):
        Topology((A, B), (Link("a", "b", 0, 1),)).link(1, 0)


def test_a_transfer_costs_the_way_and_both_ends():
    link = Link("*", "*", 1, 2, send_s=3, send_s_per_byte=0.5, receive_s=4, receive_s_per_byte=0.25)
    assert (link.transfer_s(8), link.send_busy_s(8), link.receive_busy_s(8)) == (5, 7, 6)


def test_a_devices_name_wins_over_its_kind_and_speed_divides():
    op = Op("v", cost_s={"gpu": 4.0, "b": 6.0})
    assert op.cost_on(B) == 3.0
    assert not op.runs_on(A) and op.cost_on(A) == float("inf")


def test_the_least_memory_is_that_of_the_smallest_limited_device():
    small, large = (Device(f"cpu:{i}", "cpu", memory_bytes=i * 100) for i in (1, 2))
    assert Topology((A, large, small)).least_memory_bytes == 100
    assert Topology((A, B)).least_memory_bytes == math.inf


@pytest.mark.parametrize(
    ("devices", "links", "contention"),
    [
        ((), (), "none"),
        ((A, A), (), "none"),
        ((A,), (), "sometimes"),
        ((A,), (Link("a", "z", 0, 1),), "none"),
        ((A,), (Link("*", "*", -1, 1),), "none"),
        ((A,), (Link("*", "*", 0, 0),), "none"),
        ((Device("a", "cpu", speed=0),), (), "none"),
        ((Device("a", "cpu", memory_bytes=-1),), (), "none"),
        ((Device("*", "cpu"),), (), "none"),
    ],
)
def test_bad_topologies_are_refused(devices, links, contention):
    with pytest.raises(BadInputError):
        Topology(devices, links, contention)
