"""HEFT, on the example its paper works out, and under Placer's own conditions."""

import pytest

from placer.graph import Edge, Op, OpGraph
from placer.topology import Device, Link, Topology
from search.heft import heft, heft_placement
from search.problem import Problem
from surrogate.priority import upward_rank

# Topcuoglu, Hariri, Wu 2002, figure 2 and table 1: ten tasks on three processors.
COSTS = [
    (14, 16, 9), (13, 19, 18), (11, 13, 19), (13, 8, 17), (12, 13, 10),
    (13, 16, 9), (7, 15, 11), (5, 11, 14), (18, 12, 20), (21, 7, 16),
]  # fmt: skip
EDGES = [
    (1, 2, 18), (1, 3, 12), (1, 4, 9), (1, 5, 11), (1, 6, 14), (2, 8, 19), (2, 9, 16), (3, 7, 23),
    (4, 8, 27), (4, 9, 23), (5, 9, 13), (6, 8, 15), (7, 10, 17), (8, 10, 11), (9, 10, 13),
]  # fmt: skip


@pytest.fixture(scope="module")
def published():
    """A byte takes a second. Each edge is a tensor of its own, as in the paper."""
    ops = tuple(Op(f"n{i}", cost_s=dict(zip(("p1", "p2", "p3"), c, strict=True))) for i, c in enumerate(COSTS, 1))
    edges = tuple(Edge(u - 1, v - 1, c, i) for i, (u, v, c) in enumerate(EDGES))
    devices = tuple(Device(f"p{i}", "p") for i in (1, 2, 3))
    return Problem(OpGraph("heft", ops, edges), Topology(devices, (Link("*", "*", 0, 1),)))


def test_the_published_ranks(published):
    rank = upward_rank(published.graph, published.costs, published.topology)
    published_rank = [108.000, 77.000, 80.000, 80.000, 69.000, 63.333, 42.667, 35.667, 44.333, 14.667]
    assert rank == pytest.approx(published_rank, abs=1e-3)


def test_the_published_schedule_takes_80(published):
    schedule = heft(published)
    assert schedule.makespan_s == 80
    assert schedule.devices == (2, 0, 2, 1, 2, 1, 2, 0, 1, 1)
    assert published.predict(heft_placement(published)) == 80


def test_towers_go_side_by_side(towers):
    assert heft(towers).makespan_s < 0.6 * towers.predict(next(towers.singles()))


def test_colocated_ops_stay_together_and_memory_suffices(tight):
    mapping = tight.mapping(heft_placement(tight))
    assert all(mapping.memory_bytes[d] <= 24 for d in range(3))


def test_dear_transfers_keep_everything_on_one_device(towers):
    link = Link("*", "*", 0.0, 1e9, send_s=100.0, receive_s=100.0)
    topology = Topology(towers.topology.devices, (link,))
    assert len(set(heft_placement(Problem(towers.graph, topology)))) == 1
