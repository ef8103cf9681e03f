"""SPOC of graphs: what must hold of every graph, and what a mapping's features say of the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Link, Topology
from surrogate.features.mapping_features import MappingFeatures
from surrogate.features.spoc import forward, longest_chain, part, spoc
from surrogate.simulate.simulator import Simulator

ABSENT = st.none()


@st.composite
def graphs(draw, known=True):
    """Random graphs, their ops in any order; with `known`, counts are known of every op."""
    n = draw(st.integers(1, 10))
    line = draw(st.permutations(range(n)))
    flops = st.integers(0, 10**6) if known else st.one_of(ABSENT, st.integers(0, 10**6))
    depth = st.integers(0, 30) if known else st.one_of(ABSENT, st.integers(0, 30))
    ops = tuple(
        Op(
            f"op{i}",
            "MatMul",
            {"cpu": draw(st.integers(0, 999)) / 1e3},
            i,
            flops=(w := draw(flops)),
            depth=draw(depth),
            multiply_adds=None if w is None else w / 2,
        )
        for i in range(n)
    )
    pairs = [(line[u], line[v]) for v in range(n) for u in range(v)]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=20)) if pairs else []
    return OpGraph(
        "random", ops, tuple(Edge(u, v, draw(st.integers(0, 99)), draw(st.integers(0, 1))) for u, v in chosen)
    )


def chains_from(graph, v):
    """Every chain that begins with op v, by brute force."""
    ends = {e.dst for e in graph.out_edges[v]}
    return [[v, *rest] for u in ends for rest in chains_from(graph, u)] or [[v]]


@given(graphs(), st.data())
@settings(max_examples=60, deadline=None)
def test_the_longest_chain_is_the_longest_of_all_chains(graph, data):
    weights = data.draw(st.lists(st.integers(0, 9), min_size=len(graph), max_size=len(graph)))
    every = [chain for v in range(len(graph)) for chain in chains_from(graph, v)]
    found = longest_chain(graph, weights)
    assert found.length == max(sum(weights[v] for v in chain) for chain in every)
    assert sum(weights[v] for v in found.ops) == found.length
    arrows = {(e.src, e.dst) for e in graph.edges}
    assert all(pair in arrows for pair in zip(found.ops, found.ops[1:], strict=False))


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_no_chain_is_longer_than_all_and_none_shorter_than_its_heaviest_op(graph):
    found = spoc(graph)
    assert 1 <= found.hops <= found.ops == len(graph)
    assert max(op.depth for op in graph.ops) <= found.span <= sum(op.depth for op in graph.ops)
    assert max(op.flops for op in graph.ops) <= found.chain_operations <= found.operations
    assert found.chain_s <= found.work_s + 1e-9
    assert found.multiply_adds == found.operations / 2
    assert found.uncounted == 0
    assert found.breadth is None or found.breadth >= 1 - 1e-9
    assert 0 < found.narrowness <= 1


@given(graphs(known=False))
@settings(max_examples=40, deadline=None)
def test_what_is_not_known_lowers_the_counts_and_is_told(graph):
    found, unknown = spoc(graph), sum(op.flops is None for op in graph.ops)
    if unknown == len(graph):
        assert found.operations is found.multiply_adds is found.chain_operations is None
    else:
        assert found.uncounted == unknown
        assert found.operations == sum(op.flops or 0 for op in graph.ops)
    assert (found.span is None) == all(op.depth is None for op in graph.ops)


def test_a_chain_has_breadth_one_and_equal_branches_their_number():
    ops = tuple(Op(f"op{i}", cost_s={"cpu": 1.0}, flops=8.0, depth=3) for i in range(8))
    chain = spoc(OpGraph("chain", ops, tuple(Edge(i, i + 1, 4) for i in range(7))))
    assert (chain.hops, chain.span, chain.breadth, chain.narrowness) == (8, 24, 1.0, 1.0)
    assert (chain.chain_s, chain.parallelism) == (8.0, 64 / 24)
    beside = spoc(OpGraph("branches", ops, tuple(Edge(i, i + 1, 4) for i in range(7) if i % 2 == 0)))
    assert (beside.hops, beside.span, beside.breadth) == (2, 6, 4.0)


def test_size_counts_a_tensor_once_and_its_reads_each():
    """a's tensor of 100 bytes is read by b and c; b passes it on to d without touching it."""
    ops = tuple(Op(name, flops=0.0 if name == "b" else 1.0, cost_s={"cpu": 1.0}) for name in "abcd")
    found = spoc(
        OpGraph("g", ops, (Edge(0, 1, 100), Edge(0, 2, 100), Edge(1, 3, 100), Edge(2, 3, 7), Edge(0, 3, 0, 1)))
    )
    assert (found.tensors, found.tensor_bytes) == (3, 207)
    assert found.traffic_bytes == (100 + 100 + 7) + (100 + 7)  # read by c, d, d; written by a, c


def test_without_costs_or_counts_hops_are_left():
    found = spoc(OpGraph("bare", (Op("a", devices=("cpu",)), Op("b", devices=("cpu",))), (Edge(0, 1, 8),)))
    assert found.hops == 2
    assert found.operations is found.span is found.chain_s is found.work_s is found.breadth is found.parameters is None


def test_costs_are_taken_where_each_op_is_fastest():
    ops = (Op("a", cost_s={"cpu": 3.0, "gpu": 1.0}), Op("b", cost_s={"cpu": 2.0}))
    found = spoc(OpGraph("g", ops, (Edge(0, 1, 8),)))
    assert (found.work_s, found.chain_s) == (3.0, 3.0)


def test_the_forward_part_leaves_out_what_only_the_update_needs():
    """Weight and its read, loss; gradient; momentum and its read, update; a statistic that is only kept up; a learning
    rate that the gradient is multiplied by. The loss is taken by the gradient alone.
    """
    phases = {"weight": "forward", "read": "forward", "loss": "forward", "gradient": "backward", "slot": "forward",
              "read_slot": "forward", "update": "update", "statistic": "forward", "keep": "forward",
              "rate": "forward", "read_rate": "forward"}  # fmt: skip
    names = list(phases)
    arrows = ["weight read", "read loss", "read gradient", "loss gradient", "slot read_slot", "read_slot update",
              "gradient update", "weight update", "slot update", "statistic keep", "read keep", "rate read_rate",
              "read_rate gradient"]  # fmt: skip
    types = {name: "ReadVariableOp" if "read" in name else "VarHandleOp" for name in names[:2] + names[-2:]}
    ops = tuple(Op(name, types.get(name, "Mul"), phase=phase, devices=("cpu",)) for name, phase in phases.items())
    edges = tuple(Edge(*map(names.index, arrow.split()), 4) for arrow in arrows)
    found = forward(OpGraph("step", ops, edges))
    assert [op.name for op in found.ops] == ["weight", "read", "loss", "statistic", "keep"]
    assert len(found.edges) == 4
    bare = OpGraph("bare", (Op("a", devices=("cpu",)),), ())
    assert forward(bare) is None


@given(graphs())
@settings(max_examples=30, deadline=None)
def test_a_part_keeps_the_edges_within(graph):
    some = list(range(0, len(graph), 2))
    found = part(graph, some)
    assert [op.name for op in found.ops] == [graph.ops[v].name for v in some]
    inside = {(graph.ops[e.src].name, graph.ops[e.dst].name) for e in graph.edges if {e.src, e.dst} <= set(some)}
    assert {(found.ops[e.src].name, found.ops[e.dst].name) for e in found.edges} == inside


@given(graphs())
@settings(max_examples=30, deadline=None)
def test_the_features_of_a_mapping_to_one_device_are_the_spoc_of_the_graph(graph):
    topology = Topology((Device("a", "cpu"), Device("b", "cpu")), (Link("*", "*", 1e-4, 1e9),))
    features = MappingFeatures(Simulator(graph, topology))
    row = dict(zip(features.names, features.of([[0] * len(graph)])[0], strict=True))
    whole = spoc(graph)
    expected = {"ops": whole.ops, "memory_bytes": whole.held_bytes, "operations": whole.operations,
                "chain_ops": whole.hops, "chain_s": whole.chain_s, "busy_s": whole.work_s}  # fmt: skip
    np.testing.assert_allclose([row[f"{name}@a"] for name in expected], list(expected.values()))
    assert row["path_s"] == pytest.approx(whole.chain_s)
