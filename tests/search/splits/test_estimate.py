"""Estimated costs of a divided step's ops."""

from __future__ import annotations

import pytest

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.splits.plan import Division, SplitPlan
from search.splits.estimate import LAUNCH_S, MOVED_BYTES_PER_S, estimated, unfused

WHOLE = OpGraph("step", (Op("layer", cost_s={"cpu": 1.0, "gpu": 0.1}), Op("layer/part_1", cost_s={"cpu": 3.0})), ())
PLAN = SplitPlan({"layer": Division("batch", 2)})


def test_a_part_costs_its_share_an_op_named_like_one_what_it_did_and_a_join_what_it_moves():
    ops = (
        Op("layer/part_0", devices=("cpu",), part=0, part_of="layer"),
        Op("layer/part_1_1", devices=("cpu",), part=1, part_of="layer"),
        Op("layer/part_1", devices=("cpu",)),
        Op("layer/part_0/weighted", devices=("cpu",), part=0),
    )
    divided = OpGraph("step", ops, (Edge(0, 3, 4_000_000),))
    parts, renamed, same, joined = (op.cost_s for op in estimated(WHOLE, divided, PLAN).ops)
    assert parts == renamed == {"cpu": pytest.approx((1 + LAUNCH_S) / 2), "gpu": pytest.approx((0.1 + LAUNCH_S) / 2)}
    assert same == {"cpu": 3.0}
    assert joined == dict.fromkeys(("cpu", "gpu"), LAUNCH_S + 4_000_000 / MOVED_BYTES_PER_S)


def test_a_copy_costs_what_the_op_does():
    divided = OpGraph("step", (Op("layer/part_0", devices=("cpu",), part=0, part_of="layer"),), ())
    (copy,) = estimated(WHOLE, divided, SplitPlan({"layer": Division("copies", 2)})).ops
    assert copy.cost_s == {"cpu": pytest.approx(1.0), "gpu": pytest.approx(0.1)}


def test_what_is_moved_costs_as_much_as_element_wise_ops_that_were_profiled_and_a_slice_only_what_it_takes():
    """16 MB in and 8 MB out in 1 ms are 24 GB/s."""
    ops = (Op("a", cost_s={"cpu": 0.0}), Op("b", "Mul", {"cpu": 1e-3}), Op("c", cost_s={"cpu": 0.0}))
    whole = OpGraph("step", ops, (Edge(0, 1, 16_000_000), Edge(1, 2, 8_000_000)))
    moves = tuple(
        Op(name, kind, devices=("cpu",)) for name, kind in (("join", "AddN"), ("cut", "Slice"), ("end", "Slice"))
    )
    divided = OpGraph(
        "step", (*ops[:1], *moves), (Edge(0, 1, 16_000_000), Edge(1, 2, 8_000_000), Edge(2, 3, 2_400_000))
    )
    _, join, cut, _ = (op.cost_s["cpu"] - LAUNCH_S for op in estimated(whole, divided, SplitPlan()).ops)
    assert (join, cut) == (pytest.approx(1e-3, rel=1e-5), pytest.approx(2e-4))


def test_a_fused_kernel_is_the_convolutions_and_not_the_last_ops_under_whose_name_it_ran():
    cost_s = ({"cpu": 0.0}, {"cpu": 0.0}, {"cpu": 2.0}, {"cpu": 1.0}, {"cpu": 0.0}, {"cpu": 3.0})
    types = ("Conv2D", "BiasAdd", "Relu", "Conv2D", "MatMul", "MatMul")
    ops = tuple(Op(f"op{i}", kind, costs) for i, (kind, costs) in enumerate(zip(types, cost_s, strict=True)))
    found = unfused(OpGraph("step", ops, tuple(Edge(i, i + 1, 8) for i in range(5))))
    assert [op.cost_s["cpu"] for op in found.ops] == [2.0 - LAUNCH_S, 0.0, LAUNCH_S, 1.0, 0.0, 3.0]
