"""Which nodes of a Ray cluster are taken: whole ones, free ones, and refusals that say how many there are."""

from __future__ import annotations

import pytest

from placer.devices.ray.node_worker import share
from placer.devices.ray.nodes import RESERVE_S, Node, first_core, nodes_of, reserve, sizes
from placer.devices.ray.spec import RaySpec, is_ray
from placer.devices.specs import check_spec
from placer.errors import BadInputError, PlacerError
from tests.clock import Clock

HEAD = "10.0.0.1:6379"


def node(name, cpus=4, gpus=0, host=None):
    return Node(name, host or name, f"10.0.0.{ord(name[0]) - 96}", cpus, gpus)


class Group:
    """A placement group: its bundles, and the nodes that were found for it."""

    def __init__(self, bundles, nodes, clock):
        self.bundles, self.nodes, self.clock = bundles, nodes, clock

    def wait(self, timeout_seconds):
        self.clock.now_s += 0.0 if self.nodes else timeout_seconds
        return bool(self.nodes)


class FakeGroups:
    """A cluster that gives each bundle the first free node with enough CPUs and GPUs, and notes what it was asked."""

    def __init__(self, free, clock):
        self.free, self.clock, self.made, self.removed = free, clock, [], []

    def make(self, bundles):
        left, found = list(self.free), []
        for bundle in bundles:
            fits = [n for n in left if n.cpus >= bundle["CPU"] and n.gpus >= bundle.get("GPU", 0)]
            found += fits[:1]
            left = [n for n in left if n not in found]
        complete = len(found) == len(bundles)
        self.made.append(Group(bundles, [n.id for n in found] if complete else [], self.clock))
        return self.made[-1]

    def nodes_of(self, group):
        return group.nodes

    def remove(self, group):
        self.removed.append(group)


@pytest.mark.parametrize(
    ("spec", "count", "address"),
    [("ray:2", 2, None), ("ray:1@local", 1, "local"), ("ray:16@10.0.0.1:6379", 16, HEAD)],
)
def test_a_spec_names_the_number_of_nodes_and_perhaps_the_cluster(spec, count, address):
    assert is_ray(spec) and not is_ray("workers:2") and not is_ray(None)
    assert RaySpec.parsed(spec) == RaySpec(count, address)
    assert str(RaySpec.parsed(spec)) == spec
    check_spec(spec)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("ray:", "'' is no number of nodes; write ray:2"),
        ("ray:0", "'0' is no number of nodes"),
        ("ray:two", "'two' is no number of nodes"),
        ("ray:-1@local", "'-1' is no number of nodes"),
        ("ray:²", "is no number of nodes"),
        ("ray:99999999999", "is no number of nodes"),
        ("ray:2@", "Ray address '' is neither local nor HOST:PORT"),
        ("ray:2@head", "Ray address 'head' is neither"),
        ("ray:2@ray://head:10001", "Ray address 'ray://head:10001' is neither"),
    ],
)
def test_what_is_no_spec_is_refused_before_anything_is_asked(spec, says):
    with pytest.raises(BadInputError) as refused:
        check_spec(spec)
    assert says in str(refused.value)


def test_nodes_that_are_gone_or_have_no_cpu_are_none():
    def fact(name, alive=True, **resources):
        return {
            "NodeID": name, "Alive": alive, "NodeManagerAddress": "10.0.0.1", "NodeManagerHostname": "h",
            "Resources": resources,
        }  # fmt: skip

    facts = [fact("a", CPU=4.0), fact("b", alive=False, CPU=4.0), fact("c", memory=1.0), fact("d", CPU=2.0, GPU=1.0)]
    assert nodes_of(facts) == (Node("a", "h", "10.0.0.1", 4, 0), Node("d", "h", "10.0.0.1", 2, 1))


def test_whole_nodes_are_reserved_with_their_gpus():
    nodes = [node("a"), node("b", cpus=8, gpus=2), node("c")]
    groups = FakeGroups([nodes[0], nodes[1]], Clock(5.0))
    group, taken = reserve(RaySpec(2), nodes, groups, HEAD, groups.clock)
    assert taken == [nodes[1], nodes[0]]
    assert group.bundles == [{"CPU": 8.0, "GPU": 2.0}, {"CPU": 4.0}]
    assert groups.removed == []


def test_where_large_nodes_are_in_use_smaller_ones_are_taken_and_never_the_half_of_one():
    nodes = [node("a", cpus=8), node("b", cpus=8), node("c", cpus=4), node("d", cpus=4)]
    groups = FakeGroups([nodes[0], nodes[2], nodes[3]], Clock(5.0))  # b is in use
    _, taken = reserve(RaySpec(2), nodes, groups, HEAD, groups.clock)
    assert taken == [nodes[0], nodes[2]]
    halves = FakeGroups([node("a", cpus=4)], Clock(5.0))  # the half of a that is left
    with pytest.raises(PlacerError):
        reserve(RaySpec(1), nodes, halves, HEAD, halves.clock)
    assert halves.removed == halves.made


def test_too_few_nodes_are_refused_at_once_with_their_number():
    groups = FakeGroups([], Clock(5.0))
    with pytest.raises(BadInputError) as refused:
        reserve(RaySpec(2, HEAD), [node("a")], groups, HEAD, groups.clock)
    assert str(refused.value) == (
        f"ray:2@{HEAD} needs 2 nodes, the cluster at {HEAD} has 1; for several workers on one machine write workers:2."
    )
    assert groups.made == []


def test_nodes_in_use_are_waited_for_so_long_in_all_and_asked_for_no_more():
    nodes = [node("a"), node("b", cpus=8), node("c", cpus=2)]
    groups = FakeGroups(nodes[:1], Clock(5.0))
    with pytest.raises(PlacerError, match=f"of the 3 at {HEAD} fewer became free within {RESERVE_S:.0f} s"):
        reserve(RaySpec(2), nodes, groups, HEAD, groups.clock)
    assert groups.clock.now_s == pytest.approx(5.0 + RESERVE_S)
    assert len(groups.made) == 3
    assert groups.removed == groups.made


def test_sizes_are_the_different_ones_largest_first():
    nodes = [node("a", 2), node("b", 8), node("c", 2), node("d", 4, gpus=1)]
    assert sizes(nodes, 1) == [((1, 4),), ((0, 8),), ((0, 2),)]
    assert sizes(nodes, 3) == [((1, 4), (0, 8), (0, 2)), ((1, 4), (0, 2), (0, 2)), ((0, 8), (0, 2), (0, 2))]
    assert sizes([node("a")] * 300, 150) == [((0, 4),) * 150]


def test_nodes_on_one_machine_have_cores_of_their_own():
    nodes = [node("b", 2, host="m"), node("a", 1, host="m"), node("c", 3)]
    assert [first_core(n, nodes) for n in nodes] == [1, 0, 0]
    assert share([0, 2, 4, 6], 1, 2) == [2, 4]
    assert share([0, 2, 4, 6], 3, 2) == [0, 2, 4, 6], "more CPUs than cores"
