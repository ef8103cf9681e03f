"""What is carried over: the same mapping to the same graph, and always one that fits."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.graph.op_graph import Edge, OpGraph
from placer.graph.topology import Topology
from search.initial.baselines import Random, random_placement
from search.initial.carried import carried
from search.initial.likeness import Shape


def drawn(problem, seed=0):
    """A random placement that fits."""
    return random_placement(Random(problem, seed=seed))


def over(source, target, placement):
    return carried(target, Shape.of(target), Shape.of(source), placement)


def test_to_the_same_graph_the_same_mapping_is_carried(problem):
    for seed in range(10):
        assert over(problem, problem, drawn(problem, seed)) == drawn(problem, seed)


def test_other_costs_do_not_change_that(problem):
    for seed in range(10):
        dearer = replace(problem, cost_s=problem.costs * 3)
        assert over(problem, dearer, drawn(problem, seed)) == drawn(problem, seed)


def test_devices_by_other_names_get_an_equivalent_mapping(towers):
    names = {name: f"other{name}" for name in towers.topology.names}
    devices = tuple(replace(device, name=names[device.name]) for device in towers.topology.devices)
    renamed = replace(towers, topology=Topology(devices, towers.topology.links))
    for seed in range(10):
        placement = drawn(towers, seed)
        found = over(towers, renamed, placement)
        assert renamed.canonical(found) == towers.canonical(placement)
        assert renamed.predict(found) == pytest.approx(towers.predict(placement))


def test_the_same_network_under_other_names_gets_the_same_mapping(towers):
    ops = tuple(replace(op, name=f"net/{op.name}", type="Op") for op in towers.graph.ops)
    typed = tuple(replace(op, type="Op") for op in towers.graph.ops)
    one = replace(towers, graph=OpGraph("one", typed, towers.graph.edges))
    other = replace(towers, graph=OpGraph("other", ops, towers.graph.edges))
    best = tuple(0 if "tower0" in towers.graph.ops[unit[0]].name else 1 for unit in towers.units)
    assert over(one, other, best) == best


def test_ops_that_are_new_go_where_heft_puts_them_and_the_others_stay(towers):
    """A third tower beside two that were side by side; a third device beside theirs."""
    ops, edges = list(towers.graph.ops), list(towers.graph.edges)
    first, join = len(ops), towers.graph.index["join"]
    ops += [replace(ops[1], name=f"tower2/{i}") for i in range(4)]
    edges += [Edge(0, first, 1), *(Edge(v, v + 1, 1) for v in range(first, first + 3)), Edge(first + 3, join, 1)]
    devices = (*towers.topology.devices, replace(towers.topology.devices[0], name="third"))
    wider = replace(
        towers, graph=OpGraph("three", tuple(ops), tuple(edges)), topology=Topology(devices, towers.topology.links)
    )
    best = tuple(int("tower1" in towers.graph.ops[unit[0]].name) for unit in towers.units)
    at = dict(zip((wider.graph.ops[unit[0]].name for unit in wider.units), over(towers, wider, best), strict=True))
    assert [at[f"tower{t}/{i}"] for t in range(3) for i in range(4)] == [0] * 4 + [1] * 4 + [2] * 4


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1000), scale=st.floats(0.5, 1.2))
def test_what_is_carried_fits(tight, seed, scale):
    """Also where the ops hold more than those that were placed before."""
    ops = tuple(replace(op, memory_bytes=int(op.memory_bytes * scale)) for op in tight.graph.ops)
    other = replace(tight, graph=OpGraph("other", ops, tight.graph.edges))
    found = over(tight, other, drawn(tight, seed))
    assert found is None or other.fits(found)
    if found is not None:
        other.mapping(found)  # which checks devices and colocation, too


def test_fewer_and_more_devices(problem, towers):
    devices = problem.topology.devices
    few = Topology(devices[:1], problem.topology.links)
    found = over(problem, replace(problem, topology=few), drawn(problem)) if len(devices) > 1 else None
    assert found is None or set(found) == {0}
    more = Topology((*towers.topology.devices, replace(towers.topology.devices[0], name="more")), towers.topology.links)
    assert over(towers, replace(towers, topology=more), drawn(towers)) is not None


def test_where_a_tensor_cannot_cross_nothing_is_carried(towers):
    apart = replace(towers, topology=Topology(towers.topology.devices))
    split = tuple(u % 2 for u in range(len(towers.units)))
    assert over(towers, apart, split) is None
    assert over(towers, apart, (0,) * len(towers.units)) == (0,) * len(towers.units)
