"""Coarsening: a partition into groups that form a DAG, with what belongs together on one device."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.errors import BadInputError
from placer.graph.coarsen import coarsen
from placer.graph.mapping import Mapping
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Topology

TWO = Topology((Device("a", "cpu"), Device("b", "cpu")))


def random_graph(ops: int, seed: int) -> OpGraph:
    """A random DAG with costs, scalars among the tensors, and a few colocated pairs."""
    chance = random.Random(seed)
    nodes = tuple(
        Op(f"v{i}", "Op", {"cpu": chance.random()}, memory_bytes=i, colocate=f"c{i % 5}" if i % 4 == 0 else None)
        for i in range(ops)
    )
    edges = {}
    for dst in range(1, ops):
        for src in chance.sample(range(dst), min(dst, chance.randint(1, 3))):
            edges[src, dst] = Edge(src, dst, chance.choice([4, 4096, 1 << 20]))
    return OpGraph("random", nodes, tuple(edges.values()))


@settings(max_examples=60, deadline=None)
@given(ops=st.integers(2, 60), seed=st.integers(0, 10_000), groups=st.integers(2, 40))
def test_groups_are_a_partition_and_keep_all_cost_and_memory(ops, seed, groups):
    fine = random_graph(ops, seed)
    coarse = coarsen(fine, groups, TWO)  # OpGraph refuses a cycle
    assert sorted(op for members in coarse.members for op in members) == list(range(ops))
    assert sum(op.cost_s["a"] for op in coarse.graph.ops) == pytest.approx(sum(op.cost_s["cpu"] for op in fine.ops))
    assert sum(op.memory_bytes for op in coarse.graph.ops) == sum(op.memory_bytes for op in fine.ops)


@settings(max_examples=40, deadline=None)
@given(ops=st.integers(2, 60), seed=st.integers(0, 10_000))
def test_any_mapping_of_the_groups_keeps_the_ops_colocated(ops, seed):
    coarse = coarsen(random_graph(ops, seed), 20, TWO)
    chance = random.Random(seed)
    devices = [0] * len(coarse.graph)
    for unit in coarse.graph.colocated:
        place = chance.randrange(2)
        for g in unit:
            devices[g] = place
    mapping = Mapping(coarse.graph, TWO, tuple(devices))
    fine = coarse.expand_mapping(mapping)  # Mapping refuses what breaks colocation
    for members, device in zip(coarse.members, mapping.devices, strict=True):
        assert {fine.devices[op] for op in members} == {device}


def test_edges_between_groups_are_the_tensors_that_cross():
    """a makes one tensor for b and c: two edges, one output index."""
    ops = tuple(Op(name, "Op", {"cpu": 1.0}) for name in "abc")
    graph = OpGraph("fork", ops, (Edge(0, 1, 8192), Edge(0, 2, 8192)))
    coarse = coarsen(graph, 6, TWO).graph
    assert [(coarse.ops[e.src].name, coarse.ops[e.dst].name, e.output_index) for e in coarse.edges] == [
        ("a", "b", 0),
        ("a", "c", 0),
    ]


def test_a_tensor_of_which_edges_disagree_is_as_large_between_groups_as_the_largest_says():
    ops = (Op("a", "Op", {"cpu": 1.0}), *(Op(name, "Op", {"cpu": 1.0}, colocate="bc") for name in "bc"))
    coarse = coarsen(OpGraph("fork", ops, (Edge(0, 1, 100), Edge(0, 2, 1000))), 6, TWO).graph
    assert [edge.edge_bytes for edge in coarse.edges] == [1000]


def test_parameter_traffic_stays_with_its_variable():
    """read -> forward, gradient -> update: the weight's reader and the update's whole chain share a device."""
    ops = (
        Op("w", "VarHandleOp", {"cpu": 0.0}, colocate="w"),
        Op("read", "ReadVariableOp", {"cpu": 0.0}, colocate="w"),
        Op("layer", "MatMul", {"cpu": 1.0}, phase="forward"),
        Op("gradient", "MatMul", {"cpu": 1.0}, phase="backward"),
        Op("scale", "Mul", {"cpu": 0.1}, phase="update"),
        Op("assign", "AssignSubVariableOp", {"cpu": 0.1}, colocate="w", phase="update"),
    )
    edges = (Edge(0, 1, 0), Edge(1, 2, 4096), Edge(2, 3, 64), Edge(3, 4, 4096), Edge(4, 5, 4096), Edge(0, 5, 0))
    coarse = coarsen(OpGraph("layer", ops, edges), 100, TWO).graph
    assert len(coarse.colocated) == 1


def test_a_scalar_for_everyone_unites_nobody():
    """One learning rate, eight independent updates: they may still be spread."""
    ops = [Op("rate", "ReadVariableOp", {"cpu": 0.0}, colocate="rate")]
    edges = []
    for i in range(8):
        ops.append(Op(f"work{i}", "MatMul", {"cpu": 1.0}))
        ops.append(Op(f"update{i}", "Mul", {"cpu": 0.1}, phase="update"))
        edges += [Edge(2 * i + 1, 2 * i + 2, 4096), Edge(0, 2 * i + 2, 4)]
    assert len(coarsen(OpGraph("sgd", tuple(ops), tuple(edges)), 18, TWO).graph.colocated) == 9


def trained_layers(layers: int, between: int, after: int) -> tuple[list[Op], list[Edge]]:
    """A chain of layers with a variable each. All gradients reach one more op, number 6 * layers, and that all updates.

    between, after: the bytes that the op gets of each gradient, and each update of the op.
    """
    ops, edges, hub = [], [], 6 * layers
    for i in range(layers):
        at = 6 * i
        ops += [
            Op(f"w{i}", "VarHandleOp", {"cpu": 0.0}, memory_bytes=4096, colocate=f"w{i}"),
            Op(f"read{i}", "ReadVariableOp", {"cpu": 0.0}, colocate=f"w{i}"),
            Op(f"layer{i}", "MatMul", {"cpu": 1.0}, phase="forward"),
            Op(f"gradient{i}", "MatMul", {"cpu": 1.0}, phase="backward"),
            Op(f"part{i}", "L2Loss", {"cpu": 1e-5}, phase="update"),
            Op(f"assign{i}", "AssignSubVariableOp", {"cpu": 1e-5}, colocate=f"w{i}", phase="update"),
        ]
        edges += [Edge(at, at + 1, 0), Edge(at + 1, at + 2, 4096), Edge(at + 2, at + 3, 64), Edge(at, at + 5, 0)]
        edges += [Edge(at - 4, at + 2, 64)] if i else []
        edges += [Edge(at + 3, at + 4, 4096), Edge(at + 4, hub, between), Edge(hub, at + 5, after)]
        edges += [Edge(at + 3, at + 5, 4096)]
    return ops, edges


@pytest.mark.parametrize(
    ("between", "after", "hub"),
    [
        pytest.param(4, 4, "Pack", id="the norm of all gradients scales each of them"),
        pytest.param(4096, 4096, "ConcatV2", id="all gradients are concatenated, and each gets its slice"),
    ],
)
def test_what_takes_the_gradients_of_all_variables_unites_none(between, after, hub):
    ops, edges = trained_layers(20, between, after)
    graph = OpGraph("clipped", (*ops, Op("all", hub, {"cpu": 1e-5}, phase="update")), tuple(edges))
    found = shares(coarsen(graph, 120, TWO))
    assert len(found) == 21 and found[0] == pytest.approx(1 / 20, rel=1e-2)


def test_where_one_op_updates_all_variables_what_reads_them_is_free():
    """`If`, by which Keras accumulates gradients: variables must be where it is, but layers may be sent weights."""
    ops, edges = trained_layers(20, 4096, 4)
    ops = [replace(op, colocate=op.colocate and "if") for op in ops]
    graph = OpGraph("accumulated", (*ops, Op("if", "If", {"cpu": 1e-5}, colocate="if", phase="update")), tuple(edges))
    found = shares(coarsen(graph, 120, TWO))
    assert len(found) >= 30 and found[0] < 1 / 10


def test_an_op_for_one_device_that_makes_a_scalar_takes_no_layer_along():
    """Such as one that prints a layer's activations, and has no kernel for GPUs."""
    cost_s = {"gpu": 1.0, "cpu": 10.0}
    ops = [Op(f"layer{i}", "MatMul", cost_s) for i in range(8)] + [
        Op(f"text{i}", "StringFormat", {"cpu": 1e-5}) for i in range(8)
    ]
    ops += [Op(f"print{i}", "PrintV2", {"cpu": 1e-5}) for i in range(8)]
    edges = [Edge(i, i + 1, 4096) for i in range(7)]
    edges += [Edge(i, 8 + i, 4096) for i in range(8)] + [Edge(8 + i, 16 + i, 8) for i in range(8)]
    for groups in (12, 60):
        coarse = coarsen(OpGraph("printing", tuple(ops), tuple(edges)), groups, THREE)
        there = {
            v for op, group in zip(coarse.graph.ops, coarse.members, strict=True) if "gpu:0" in op.cost_s for v in group
        }
        assert there == set(range(8))


@pytest.mark.parametrize(("parts", "colocate", "units"), [(4, None, 1), (40, "layer", 1), (40, None, 41)])
def test_a_weight_stays_with_what_reads_it_unless_that_is_much(parts, colocate, units):
    """The micro-batches of a layer share a device; the steps of an unrolled recurrent layer need not."""
    ops = [
        Op("w", "VarHandleOp", {"cpu": 0.0}, memory_bytes=4096, colocate="w"),
        Op("read", "ReadVariableOp", {"cpu": 0.0}, colocate="w"),
        *(Op(f"layer{i}", "MatMul", {"cpu": 1.0}, colocate=colocate) for i in range(parts)),
    ]
    edges = [Edge(0, 1, 0), *(Edge(1, 2 + i, 4096) for i in range(parts))]
    assert len(shares(coarsen(OpGraph("shared", tuple(ops), tuple(edges)), 200, TWO))) == units


def test_the_penalty_of_a_weight_is_computed_where_the_weight_is():
    """So that a layer on another device sends its penalty to the loss, and not all its weights."""
    ops, edges = trained_layers(20, 4, 4)
    hub = len(ops)
    ops += [Op("all", "Pack", {"cpu": 1e-5}, phase="update"), Op("loss", "AddN", {"cpu": 1e-5}, phase="forward")]
    for i in range(20):
        ops += [
            Op(f"square{i}", "Square", {"cpu": 1e-5}, phase="forward"),
            Op(f"sum{i}", "Sum", {"cpu": 1e-5}, phase="forward"),
        ]
        at = len(ops) - 2
        edges += [Edge(6 * i + 1, at, 4096), Edge(at, at + 1, 4096), Edge(at + 1, hub + 1, 4)]
    coarse = coarsen(OpGraph("penalised", tuple(ops), tuple(edges)), 120, TWO).graph
    label = [op.colocate or op.name for op in coarse.ops]
    crossing = [e.edge_bytes for e in coarse.edges if label[e.src] != label[e.dst]]
    assert len(set(label)) >= 20 and max(crossing) == 64


def test_asked_for_fewer_groups_it_gives_fewer():
    fine = random_graph(60, 3)
    sizes = [len(coarsen(fine, groups, TWO).graph) for groups in (6, 12, 30, 60)]
    assert sizes == sorted(set(sizes))


THREE = Topology((Device("gpu:0", "gpu", speed=2.0), Device("gpu:1", "gpu"), Device("cpu:0", "cpu")))


def choosy_graph(ops: int, seed: int) -> OpGraph:
    """`random_graph`, its units limited to devices or with costs on some only, by names and by kinds."""
    chance = random.Random(seed)
    fine = random_graph(ops, seed)
    limits: dict[str, tuple[str, ...] | None] = {}
    choices = [None, None, ("cpu",), ("gpu",), ("gpu:1",), ("gpu:1", "cpu:0")]
    costs = [{"gpu": 1.0, "cpu": 2.0}, {"gpu": 1.0, "gpu:1": 3.0, "cpu:0": 2.0}]
    nodes = []
    for op in fine.ops:
        devices = limits.setdefault(op.colocate or op.name, chance.choice(choices))
        nodes.append(
            replace(op, cost_s=chance.choice(costs), devices=devices, type=chance.choice(("", "ReadVariableOp")))
        )
    return OpGraph("choosy", tuple(nodes), fine.edges)


@settings(max_examples=80, deadline=None)
@given(ops=st.integers(2, 60), seed=st.integers(0, 10_000), groups=st.integers(2, 40))
def test_a_group_costs_what_its_ops_do_and_runs_where_all_of_them_can(ops, seed, groups):
    fine = choosy_graph(ops, seed)
    coarse = coarsen(fine, groups, THREE)
    for group, members in zip(coarse.graph.ops, coarse.members, strict=True):
        for device in THREE.devices:
            assert group.cost_on(device) == pytest.approx(sum(fine.ops[v].cost_on(device) for v in members))


@settings(max_examples=80, deadline=None)
@given(ops=st.integers(2, 60), seed=st.integers(0, 10_000), groups=st.integers(2, 40))
def test_what_has_no_device_in_common_stays_apart(ops, seed, groups):
    coarse = coarsen(choosy_graph(ops, seed), groups, THREE)
    for unit in coarse.graph.colocated:
        assert any(all(coarse.graph.ops[g].runs_on(d) for g in unit) for d in THREE.devices)


def test_a_pinned_op_takes_nobody_along_where_there_is_room():
    """Two chains of twenty, the first op of one on the cpu alone: its neighbours stay free to choose."""
    cost_s = {"gpu": 1.0, "cpu": 1.0}
    ops = tuple(Op(f"v{i}", "MatMul", cost_s, devices=None if i else ("cpu:0",)) for i in range(40))
    edges = tuple(Edge(i, i + 1, 1 << 20) for i in range(39) if i != 19)
    coarse = coarsen(OpGraph("chains", ops, edges), 30, THREE)
    limited = [members for op, members in zip(coarse.graph.ops, coarse.members, strict=True) if op.devices is not None]
    assert limited == [(0,)]


@pytest.mark.parametrize("depth", [1, 3])
def test_the_branches_of_a_wide_fork_unite_with_one_another(depth):
    """Were the fork to take them in one by one, nearly all work would be bound to one device."""
    branches, cost_s = 300, 1.0
    ops = [Op("fork", "Split", {"cpu": cost_s}), Op("join", "Concat", {"cpu": cost_s})]
    edges = []
    for branch in range(branches):
        ops += [Op(f"b{branch}/{level}", "MatMul", {"cpu": cost_s}) for level in range(depth)]
        path = [0, *range(len(ops) - depth, len(ops)), 1]
        edges += [Edge(src, dst, 4096) for src, dst in itertools.pairwise(path)]
    coarse = coarsen(OpGraph("fan", tuple(ops), tuple(edges)), 60, TWO).graph
    assert len(coarse) <= 60
    work_s = Counter[str]()
    for op in coarse.ops:
        work_s[op.colocate or op.name] += op.cost_s["a"]
    assert max(work_s.values()) < 0.1 * sum(work_s.values())


def test_a_device_that_is_called_like_the_kind_of_another_is_refused():
    topology = Topology((Device("gpu", "a100"), Device("b", "gpu")))
    with pytest.raises(BadInputError, match="'gpu' is the kind of device 'b' and the name of a device of another kind"):
        coarsen(random_graph(4, 0), 2, topology)


def shares(coarse):
    """The share of the step's cost that each unit has, the largest first."""
    work_s = Counter[str]()
    for op in coarse.graph.ops:
        work_s[op.colocate or op.name] += min(op.cost_s.values())
    return [seconds / sum(work_s.values()) for _, seconds in work_s.most_common()]


@pytest.mark.parametrize("scalars", [0, 50, 100, 400])
def test_what_only_scalars_reach_does_not_use_up_the_groups(scalars):
    """Metrics and the like beside a network of 200 ops: however many there are, its ops stay apart."""
    ops = [Op(f"heavy{i}", "MatMul", {"cpu": 0.01}) for i in range(200)]
    edges = [Edge(i, i + 1, 1 << 20) for i in range(199)]
    for i in range(scalars):
        ops += [Op(f"total{i}", "AssignAdd", {"cpu": 1e-6}), Op(f"mean{i}", "DivNoNan", {"cpu": 1e-6})]
        edges += [Edge(i % 200, len(ops) - 2, 4), Edge(len(ops) - 2, len(ops) - 1, 4)]
    coarse = coarsen(OpGraph("metrics", tuple(ops), tuple(edges)), 192, TWO)
    assert len(shares(coarse)) == len(coarse.graph) == 96 and shares(coarse)[0] < 0.03


def test_heavy_units_that_only_scalars_reach_stay_apart():
    """Ten towers that share nothing but a loss: as many units, and the groups of other ops are as many as before."""
    ops, edges = [Op("loss", "AddN", {"cpu": 1e-6})], []
    for tower in range(10):
        ops.append(Op(f"tower{tower}", "Conv2D", {"cpu": 1.0}))
        edges.append(Edge(len(ops) - 1, 0, 4))
    chain = len(ops)
    ops += [Op(f"chain{i}", "MatMul", {"cpu": 0.01}) for i in range(40)]
    edges += [Edge(chain + i, chain + i + 1, 1 << 20) for i in range(39)]
    found = shares(coarsen(OpGraph("towers", tuple(ops), tuple(edges)), 20, TWO))
    assert len(found) == 20 and found[9] == pytest.approx(1.0 / 10.4, rel=1e-3)


@pytest.mark.parametrize("groups", [8, 20, 60])
def test_ops_for_one_device_do_not_take_a_network_along_however_many_there_are(groups):
    """Each op of a network for both kinds of device sends a tensor to a small one that has no GPU kernel."""
    cost_s, count = {"gpu": 1.0, "cpu": 10.0}, 100
    ops = [Op(f"v{i}", "MatMul", cost_s) for i in range(count)]
    ops += [Op(f"s{i}", "AsString", {"cpu": 1e-4}) for i in range(count)]
    edges = [Edge(i, i + 1, 1 << 20) for i in range(count - 1)] + [Edge(i, count + i, 4096) for i in range(count)]
    coarse = coarsen(OpGraph("strings", tuple(ops), tuple(edges)), groups, THREE)
    limited = {
        v for op, group in zip(coarse.graph.ops, coarse.members, strict=True) if "gpu:0" not in op.cost_s for v in group
    }
    assert limited == set(range(count, 2 * count))
    work_s = Counter[str]()
    for op in coarse.graph.ops:
        work_s[op.colocate or op.name] += op.cost_s.get("gpu:0", 0.0)
    assert max(work_s.values()) < 0.7 * sum(work_s.values())


def test_variables_that_no_device_holds_together_stay_apart():
    """Embedding tables of 60 MB, which one op looks up and another one joins, on devices of 100 MB."""
    limited = Topology(tuple(replace(device, memory_bytes=100_000_000) for device in TWO.devices))
    ops, edges = [Op("concat", "ConcatV2", {"cpu": 1e-4})], []
    for table in range(2):
        ops += [
            Op(f"table{table}", "VarHandleOp", {"cpu": 0.0}, memory_bytes=60_000_000, colocate=f"table{table}"),
            Op(f"read{table}", "ReadVariableOp", {"cpu": 1e-6}, colocate=f"table{table}"),
        ]
        edges += [Edge(len(ops) - 2, len(ops) - 1, 8), Edge(len(ops) - 1, 0, 1 << 20)]
    ops += [Op(f"dense{i}", "MatMul", {"cpu": 1e-3}) for i in range(40)]
    edges += [Edge(0 if i == 0 else len(ops) - 41 + i, len(ops) - 40 + i, 1 << 20) for i in range(40)]
    graph = OpGraph("recommender", tuple(ops), tuple(edges))
    for groups in (4, 16, 100):
        held = Counter[str]()
        for op in coarsen(graph, groups, limited).graph.ops:
            held[op.colocate or op.name] += op.memory_bytes
        assert sorted(held.values())[-2:] == [60_000_000, 60_000_000]
    roomy = Topology(tuple(replace(device, memory_bytes=1_000_000_000) for device in TWO.devices))
    held = Counter(op.colocate or op.name for op in coarsen(graph, 4, roomy).graph.ops if op.memory_bytes)
    assert len(held) == 1
