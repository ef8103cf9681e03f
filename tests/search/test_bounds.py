"""No mapping beats the bound; and where work divides evenly the bound is met."""

from itertools import islice

import pytest

from search.base import fitting_placements
from search.bounds import lower_bound
from search.problem import Problem


def test_no_mapping_beats_the_bound(problem):
    bound = lower_bound(problem)
    assert bound > 0
    assert all(problem.predict(p) >= bound for p in islice(fitting_placements(problem), 500))


def test_the_bound_is_met_by_towers_side_by_side(towers):
    assert lower_bound(towers) == pytest.approx(4.02)


def test_devices_of_different_speed_share_by_speed(towers):
    fast = type(towers.topology.devices[1])("cpu:1", "cpu", speed=3.0)
    topology = type(towers.topology)((towers.topology.devices[0], fast), towers.topology.links)
    assert lower_bound(Problem(towers.graph, topology, "max-load")) == pytest.approx(8.02 / 4)
