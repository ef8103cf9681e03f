"""How alike two steps are, and what of one stands for what of the other."""

import pytest

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from search.initial.likeness import Shape, by_name, by_place, devices_by_name, devices_by_speed, likeness
from search.problem.problem import Problem


def machine(**speeds):
    """CPUs of these names and speeds."""
    devices = tuple(Device(name, "cpu", speed=speed) for name, speed in speeds.items())
    return Topology(devices, (Link("*", "*", 0.01, 100.0),))


def network(blocks, name="block{}", kinds=("Conv", "Norm", "Relu"), cost_s=1.0):
    """Blocks of three ops, one after another."""
    ops = [Op(f"{name.format(b)}/{kind}", kind, {"cpu": cost_s}) for b in range(blocks) for kind in kinds]
    return OpGraph("net", tuple(ops), tuple(Edge(v, v + 1, 1) for v in range(len(ops) - 1)))


def shape(graph, topology=None):
    return Shape.of(Problem(graph, topology or machine(a=1.0, b=1.0)))


def test_a_graph_is_wholly_like_itself_and_its_ops_stand_for_themselves():
    one = shape(network(5))
    assert likeness(one, one) == 1.0
    assert by_name(one, one) == by_place(one, one) == tuple(range(15))


def test_other_costs_change_nothing_of_it():
    assert likeness(shape(network(5)), shape(network(5, cost_s=3.0))) == 1.0


def test_likeness_is_mutual_and_a_share():
    for one, other in ((network(5), network(8)), (network(5), network(5, kinds=("Conv", "Add", "Relu")))):
        there, back = likeness(shape(one), shape(other)), likeness(shape(other), shape(one))
        assert there == pytest.approx(back)
        assert 0 <= there < 1


def test_a_deeper_network_of_the_same_blocks_is_alike_whatever_its_names():
    assert likeness(shape(network(10)), shape(network(20, "layer{}"))) > 0.9


def test_another_network_is_not_alike():
    other = network(10, "layer{}", kinds=("MatMul", "Softmax", "Add"))
    assert likeness(shape(network(10)), shape(other)) == 0.0


def test_ops_without_types_are_known_by_name_alone():
    bare = [OpGraph("net", tuple(Op(f"{n}{v}", "", {"cpu": 1.0}) for v in range(9)), ()) for n in "ab"]
    assert likeness(shape(bare[0]), shape(bare[1])) == 0.0
    assert likeness(shape(bare[0]), shape(bare[0])) == 1.0


def test_names_alone_are_not_enough_where_everything_else_is_connected_otherwise():
    ops = tuple(Op(f"v{v}", "", {"cpu": 1.0}) for v in range(20))
    chain = OpGraph("chain", ops, tuple(Edge(v, v + 1, 1) for v in range(19)))
    star = OpGraph("star", ops, tuple(Edge(0, v, 1) for v in range(1, 20)))
    assert likeness(shape(chain), shape(star)) < likeness(shape(chain), shape(chain))


def test_the_blocks_of_a_deeper_network_stand_in_line_with_those_of_a_shallower_one():
    source, target = shape(network(4)), shape(network(8, "layer{}"))
    found = by_place(source, target)
    assert [source.types[i] for i in found] == list(target.types)
    assert all(list(found[k::3]) == sorted(found[k::3]) for k in range(3))
    assert [i // 3 for i in found[1::3]] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_an_op_of_an_unknown_type_goes_by_its_place():
    source = shape(network(4))
    target = shape(network(4, kinds=("Conv", "Norm", "Gelu")))
    assert by_place(source, target)[2] in (1, 2, 3)


def test_devices_go_by_name_where_all_are_known():
    one, other = (shape(network(2), machine(**speeds)) for speeds in ({"a": 1.0, "b": 2.0}, {"b": 2.0, "a": 1.0}))
    assert devices_by_name(one, other) == (1, 0)
    assert devices_by_name(one, shape(network(2), machine(a=1.0, c=2.0))) is None


def test_devices_go_by_rank_of_speed():
    one = shape(network(2), machine(slow=1.0, fast=2.0, middle=1.5))
    assert devices_by_speed(one, shape(network(2), machine(x=4.0, y=5.0, z=6.0))) == (0, 2, 1)
    assert devices_by_speed(one, shape(network(2), machine(x=1.0, y=2.0))) == (0, 1, 1)
    assert devices_by_speed(one, shape(network(2), machine(only=1.0))) == (0, 0, 0)


def test_each_kind_has_its_own_ranks():
    ops = (Op("a", "", {"cpu": 4.0, "gpu": 1.0}),)
    graph = OpGraph("one", ops, ())
    mixed = [Topology(tuple(Device(n, n[:3]) for n in names)) for names in (("cpu0", "gpu0"), ("gpu1", "gpu2", "cpu1"))]
    assert devices_by_speed(*(shape(graph, topology) for topology in mixed)) == (2, 0)
    assert devices_by_speed(*(shape(graph, topology) for topology in (mixed[0], machine(x=1.0)))) == (0, 0)
