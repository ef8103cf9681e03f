"""Heads and tails: by kinds of devices as by all pairs of devices, to the last bit; cut short, they still hold."""

from functools import partial
from itertools import chain, count, repeat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.graph.topology import Device, Link, Topology
from search.exact.bounds import lower_bound
from search.problem import longest_paths
from search.problem.alike_devices import alike_devices
from search.problem.longest_paths import crossings, heads, path_tables, tails
from search.problem.problem import Problem


def ways_of(problem):
    return path_tables(problem.simulator.tables, problem.limits, problem.graph.order)


def by_all_pairs(ways):
    """(heads, tails) by their definition."""
    cross_s, cost_s = crossings(ways), ways.cost_s
    head_s, tail_s = (np.where(np.isfinite(cost_s), 0.0, np.inf) for _ in range(2))
    for p, (u, v) in enumerate(zip(ways.src, ways.dst, strict=True)):
        head_s[v] = np.maximum(head_s[v], ((head_s[u] + cost_s[u])[:, None] + cross_s[p]).min(axis=0))
    for p, (u, v) in reversed([*enumerate(zip(ways.src, ways.dst, strict=True))]):
        tail_s[u] = np.maximum(tail_s[u], (cross_s[p] + cost_s[v] + tail_s[v]).min(axis=1))
    return head_s, tail_s


@given(st.data())
def test_kinds_of_devices_change_no_bit(enumerable, data):
    problem = data.draw(enumerable)
    if problem is not None:
        ways = ways_of(problem)
        assert np.array_equal((heads(ways), tails(ways)), by_all_pairs(ways))


def in_nodes(devices, nodes, **fields):
    """Devices with links that are faster within a node."""
    machine = tuple(Device(f"gpu:{i}", "gpu", node=f"n{i % nodes}", speed=1 + i % 2) for i in range(devices))
    links = (Link("*", "*", 0.1, 100.0, tier="within", **fields), Link("*", "*", 3.0, 10.0, tier="between", **fields))
    return Topology(machine, links)


def test_devices_of_a_node_are_of_a_kind_and_change_no_bit(build):
    problem = Problem(build.layered(1), in_nodes(9, 3, send_s=0.3))
    ways = ways_of(problem)
    assert np.array_equal((heads(ways), tails(ways)), by_all_pairs(ways))
    assert len(ways.kind) - 1 == 3
    assert len(ways_of(Problem(build.layered(1), in_nodes(9, 9))).kind) - 1 == 1  # all links are between nodes
    assert problem.alike == (0, 1, 2, 3, 4, 5, 0, 1, 2)  # by speed, too


def test_devices_with_other_links_are_unlike():
    devices = tuple(Device(f"gpu:{i}", "gpu") for i in range(4))
    slow = Link("gpu:3", "gpu:0", 5.0, 1.0)  # to one of three that are else alike
    topology = Topology(devices, (Link("*", "*", 0.1, 100.0), slow))
    assert alike_devices(topology, np.ones((2, 4)), (np.inf,) * 4) == (0, 1, 1, 3)
    assert alike_devices(topology, np.ones((2, 4)), (np.inf, 1.0, np.inf, np.inf)) == (0, 1, 2, 3)


def test_paths_that_time_cuts_short_are_no_longer(build, monkeypatch):
    monkeypatch.setattr(longest_paths, "AT_ONCE", 1)
    ways = ways_of(Problem(build.layered(1), build.machine("gpu", "gpu", "cpu")))
    whole = heads(ways)
    cut = [heads(ways, partial(next, chain(repeat(False, most), repeat(True)))) for most in (0, 5, len(ways.src))]
    assert all((part <= whole).all() for part in cut)
    assert 0 < cut[0].sum() < cut[1].sum() < cut[2].sum() == pytest.approx(whole.sum())


def test_the_bound_asks_for_the_time_between_pairs(build, monkeypatch):
    def asked():
        looks = count()
        lower_bound(problem, lambda: next(looks) < 0)
        return next(looks)

    problem = Problem(build.layered(1), build.machine("gpu", "gpu", "cpu"))
    at_once = asked()
    monkeypatch.setattr(longest_paths, "AT_ONCE", 1)
    assert asked() == at_once + len(ways_of(problem).src) - 1
