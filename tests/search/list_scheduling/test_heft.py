"""HEFT, on the example its paper works out, and under Placer's own conditions."""

import pytest

from placer.graph.topology import Link, Topology
from search.list_scheduling.heft import heft, heft_placement
from search.problem.problem import Problem
from surrogate.simulate.priority import upward_rank


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
