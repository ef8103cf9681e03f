"""Which links are measured: all of a few devices, and few between the nodes of many."""

from itertools import combinations

import pytest

from placer.devices.links.link_pairs import ALL, representatives


def cluster(nodes, cpus, gpus=0):
    """The kinds and the nodes of so many devices on each node."""
    kinds = [*["cpu"] * cpus, *["gpu"] * gpus] * nodes
    return kinds, [f"node{n}" for n in range(nodes) for _ in range(cpus + gpus)]


@pytest.mark.parametrize(
    ("kinds", "nodes"),
    [cluster(2, ALL // 2), (["cpu"] * 12, [None] * 12), (["cpu"] * 12, [*["one"] * 11, None]), cluster(1, 12)],
)
def test_few_devices_or_unknown_nodes_have_every_pair_measured(kinds, nodes):
    every = combinations(range(len(kinds)), 2)
    assert representatives(kinds, nodes) == {pair: [pair] for pair in every}


@pytest.mark.parametrize(("nodes", "cpus", "gpus"), [(3, 4, 0), (2, 3, 4), (10, 1, 1)])
def test_every_pair_is_stood_for_once_and_by_one_of_the_same_nodes_and_kinds(nodes, cpus, gpus):
    kinds, on = cluster(nodes, cpus, gpus)
    found = representatives(kinds, on)
    stood_for = [tuple(sorted(pair)) for alike in found.values() for pair in alike]
    assert sorted(stood_for) == list(combinations(range(len(kinds)), 2))
    for (a, b), alike in found.items():
        assert (a, b) in alike
        assert {((on[c], kinds[c]), (on[d], kinds[d])) for c, d in alike} == {((on[a], kinds[a]), (on[b], kinds[b]))}
        if on[a] == on[b]:
            assert alike == [(a, b)]


def test_what_is_measured_grows_with_the_nodes_not_with_their_devices():
    """Beside the pairs within each node."""
    for per_node in (4, 8):
        found = representatives(*cluster(5, per_node))
        assert len(found) == 5 * per_node * (per_node - 1) // 2 + 10
