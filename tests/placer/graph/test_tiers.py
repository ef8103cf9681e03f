"""Tiers: links within a node and between nodes say what the same links say pair by pair."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.errors import BadInputError
from placer.graph.graph_files import read_topology, write_topology
from placer.graph.topology import ANY, TIERS, Device, Link, Topology

NODES = ("one", "one", "two", "two", "two", "three")
DEVICES = tuple(Device(f"cpu:{i}", "cpu", node=node) for i, node in enumerate(NODES))
NAMES = tuple(device.name for device in DEVICES)
WITHIN, BETWEEN = (
    Link(ANY, ANY, latency_s, 1e9, tier=tier) for latency_s, tier in ((1e-6, "within"), (1e-3, "between"))
)


@st.composite
def links(draw):
    """Links between devices, from or to any, in either tier or none; never a tier that a pair is not in."""
    src, dst = (draw(st.sampled_from((ANY, *NAMES))) for _ in range(2))
    tier = draw(st.sampled_from((None, *TIERS)))
    if ANY not in (src, dst) and tier is not None:
        tier = "within" if NODES[NAMES.index(src)] == NODES[NAMES.index(dst)] else "between"
    return Link(src, dst, draw(st.floats(0, 1)), draw(st.floats(1, 1e9)), tier=tier)


def pair_by_pair(given_links):
    """The same links without tiers: one for each pair that each of them is for."""
    found = []
    for link in given_links:
        for src, dst in permutations(range(len(NAMES)), 2):
            tier = "within" if NODES[src] == NODES[dst] else "between"
            if link.src in (ANY, NAMES[src]) and link.dst in (ANY, NAMES[dst]) and link.tier in (None, tier):
                found.append(replace(link, src=NAMES[src], dst=NAMES[dst], tier=None))
    return tuple(found)


def costs(topology):
    """What each pair's link costs, whatever it is called."""
    return [[link and (link.latency_s, link.bandwidth_bytes_per_s) for link in row] for row in topology.table]


@settings(max_examples=100, deadline=None)
@given(st.lists(links(), max_size=6))
def test_tiers_say_what_the_same_links_say_pair_by_pair(drawn):
    assert costs(Topology(DEVICES, tuple(drawn))) == costs(Topology(DEVICES, pair_by_pair(drawn)))


def test_two_links_describe_a_cluster():
    table = Topology(DEVICES, (BETWEEN, WITHIN)).table
    for src, dst in permutations(range(len(DEVICES)), 2):
        assert table[src][dst] == (WITHIN if NODES[src] == NODES[dst] else BETWEEN)


def test_a_tier_leaves_the_pairs_of_the_other_without_a_link():
    with pytest.raises(BadInputError, match="no link cpu:0 -> cpu:2"):
        Topology(DEVICES, (WITHIN,)).link(0, 2)


def test_later_links_override_earlier_ones_within_a_tier():
    faster = Link("cpu:0", ANY, 1e-4, 1e9, tier="between")
    table = Topology(DEVICES, (BETWEEN, WITHIN, faster)).table
    assert (table[0][1], table[0][2], table[1][2]) == (WITHIN, faster, BETWEEN)


def test_fewer_of_the_devices_keep_their_links():
    topology = Topology(DEVICES[:2], (BETWEEN, WITHIN))
    assert topology.link(0, 1) == WITHIN


def test_tiers_are_written_and_read(tmp_path):
    topology = Topology(DEVICES, (BETWEEN, WITHIN))
    write_topology(tmp_path / "cluster.json", topology)
    assert read_topology(tmp_path / "cluster.json") == topology


def test_a_file_without_tiers_is_written_as_it_always_was(tmp_path):
    write_topology(tmp_path / "plain.json", Topology((Device("a", "cpu"),), (Link(ANY, ANY, 0.0, 1.0),)))
    text = (tmp_path / "plain.json").read_text()
    assert "node" not in text and "tier" not in text


@pytest.mark.parametrize(
    ("devices", "link", "says"),
    [
        ((*DEVICES, Device("gpu:0", "gpu")), WITHIN, "device 'gpu:0' has no node"),
        (DEVICES, replace(WITHIN, tier="rack"), "'rack' is none of within, between"),
        (DEVICES, replace(WITHIN, src="cpu:0", dst="cpu:2"), "its ends are on 'one' and 'two'"),
        ((Device("a", "cpu", node=""),), None, "its node has no name"),
    ],
)
def test_a_tier_that_cannot_be_is_refused_in_one_line(devices, link, says):
    with pytest.raises(BadInputError, match=says) as refused:
        Topology(devices, () if link is None else (link,))
    assert "\n" not in str(refused.value)


def test_a_link_for_one_pair_needs_no_node_of_other_devices():
    link = replace(WITHIN, src="cpu:0", dst="cpu:1")
    assert Topology((*DEVICES, Device("gpu:0", "gpu")), (link,)).link(0, 1) == link
