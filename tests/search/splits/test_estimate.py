"""Estimated costs of a divided step's ops."""

from __future__ import annotations

import pytest

from placer.graph.op_graph import Edge, Op, OpGraph
from placer.splits.plan import Division, SplitPlan
from search.splits.estimate import LAUNCH_S, MOVED_BYTES_PER_S, estimated

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
