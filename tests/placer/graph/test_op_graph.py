"""Graphs: valid when made, and the same structure has the same fingerprint."""

import pytest

from placer.errors import BadInputError
from placer.graph.op_graph import Edge, Op, OpGraph


def op(name, **fields):
    return Op(name, **{"cost_s": {"cpu": 1.0}, **fields})


def test_order_takes_producers_first():
    graph = OpGraph("g", (op("c"), op("a"), op("b")), (Edge(1, 2, 1), Edge(2, 0, 1)))
    assert [graph.ops[v].name for v in graph.order] == ["a", "b", "c"]


def test_an_order_of_another_graph_is_kept_where_dependencies_allow():
    ops = tuple(Op(name, devices=("cpu",)) for name in "abcdx")
    graph = OpGraph("g", ops, (Edge(0, 1, 4), Edge(2, 3, 4), Edge(3, 1, 4)))
    assert graph.ordered_like(["c", "a", "b", "d"]) == ["c", "a", "d", "b", "x"]
    assert graph.ordered_like(["x", "gone", "c"]) == ["x", "c", "a", "d", "b"]


def test_colocated_ops_are_one_unit():
    graph = OpGraph("g", (op("a", colocate="w"), op("b"), op("c", colocate="w")), ())
    assert graph.colocated == ((0, 2), (1,))


def test_fingerprint_follows_structure_and_not_costs():
    one = OpGraph("g", (op("a"), op("b")), (Edge(0, 1, 8),))
    dearer = OpGraph("h", (op("a", cost_s={"cpu": 9.0}), op("b")), (Edge(0, 1, 8),))
    wider = OpGraph("g", (op("a"), op("b")), (Edge(0, 1, 16),))
    assert one.fingerprint == dearer.fingerprint != wider.fingerprint


@pytest.mark.parametrize(
    ("ops", "edges", "says"),
    [
        ((), (), "no ops"),
        ((op("a"), op("a")), (), "two ops are called 'a'"),
        ((op("a"),), (Edge(0, 0, 1),), "feeds itself"),
        ((op("a"), op("b")), (Edge(0, 1, 1), Edge(1, 0, 1)), "cycle"),
        ((op("a"),), (Edge(0, 1, 1),), "outside"),
        ((op("a"), op("b")), (Edge(0, 1, float("nan")),), "bytes"),
        ((op("a", cost_s={"cpu": float("nan")}),), (), "cost"),
        ((op("a", memory_bytes=-1),), (), "memory_bytes"),
        ((op("a", cost_s={}),), (), "no device can run it"),
    ],
)
def test_bad_graphs_are_refused(ops, edges, says):
    with pytest.raises(BadInputError, match=says):
        OpGraph("g", ops, edges)
