"""Costs of a graph that was never profiled, where the true time of each op is a roofline."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placer.errors import BadInputError
from placer.graph.op_graph import Edge, Op, OpGraph
from placer.graph.topology import Device, Topology
from placer.profile.operators.dataset import Operator, OperatorRow, Tensor
from surrogate.operators.models import OVERALL
from surrogate.operators.predicted_costs import MEASURED, OperatorTimes, predicted_costs

OVERHEAD_S, PEAK = 5e-6, 50e9
SHAPES = [(m, k, n) for m in (8, 32, 128, 512) for k in (16, 64, 256) for n in (32, 128, 512)]
TOPOLOGY = Topology((Device("gpu:0", "gpu"), Device("cpu:0", "cpu"), Device("cpu:1", "cpu")))


def matmul(m: int, k: int, n: int) -> Operator:
    inputs = (Tensor((m, k), "float32"), Tensor((k, n), "float32"))
    return Operator("MatMul", inputs, (Tensor((m, n), "float32"),), {}, 2.0 * m * k * n)


def true_s(op: Operator) -> float:
    return OVERHEAD_S + (op.flops or 0.0) / PEAK


def row(op: Operator, seconds: float | None = None, network: str = "net", source: str = "step") -> OperatorRow:
    s = true_s(op) if seconds is None else seconds
    return OperatorRow(op, "worker:0", "cpu", "here", 8, network, "forward", source, s, s, 0.0, 20)


ROWS = [row(matmul(*shape)) for shape in SHAPES]
NEW = matmul(256, 128, 256)
ODD = replace(NEW, type="Odd")
LOOP = Operator("While", (Tensor((8,), "float32"),), (Tensor((8,), "float32"),), {}, None)


@pytest.fixture(scope="module")
def times() -> OperatorTimes:
    return OperatorTimes.of([*ROWS, row(LOOP)], "cpu")


TAKEN = replace(NEW, type="BiasAdd", attributes={"absorbed": True})


@pytest.mark.parametrize(
    ("rows", "free"),
    [
        ([row(replace(NEW, type="Conv2D", attributes={"fused_ops": ["BiasAdd"]}))], True),
        ([row(replace(NEW, type="Conv2D", attributes={"fused_ops": ["BiasAdd"]})), row(TAKEN)], False),
        ([], False),
    ],
)
def test_what_another_ops_kernel_does_takes_no_time_where_kernels_were_seen_to(
    rows: list[OperatorRow], free: bool
) -> None:
    (found,) = OperatorTimes.of([*ROWS, *rows], "cpu").predict([TAKEN])
    assert (found.seconds == 0.0) == free


def graph(*ops: Op) -> OpGraph:
    return OpGraph("new", ops, tuple(Edge(i, i + 1, 8) for i in range(len(ops) - 1)))


def test_an_operator_that_was_measured_costs_what_it_took(times: OperatorTimes) -> None:
    known = matmul(*SHAPES[0])
    (found,) = times.predict([known])
    assert (found.seconds, found.source) == (true_s(known), MEASURED)


def test_several_measurements_of_one_operator_count_by_their_median() -> None:
    op = matmul(*SHAPES[0])
    others = [row(op, 3e-3, "b"), row(op, 9e-3, "c"), row(op, 1.0, "d", source="single")]
    found = OperatorTimes.of([*ROWS, *others], "cpu")
    assert found.predict([op])[0].seconds == 3e-3


def test_unseen_shapes_are_near_the_truth_and_come_in_the_order_asked(times: OperatorTimes) -> None:
    asked = [NEW, matmul(*SHAPES[3]), ODD, matmul(64, 32, 64)]
    found = times.predict(asked)
    assert [f.seconds for f in found] == [times.predict([op])[0].seconds for op in asked]
    assert found[0].seconds == pytest.approx(true_s(NEW), rel=0.25)
    assert found[2].source == OVERALL


def test_a_network_never_profiled_gets_costs_wherever_its_ops_may_run(times: OperatorTimes) -> None:
    net = graph(Op("w", "VarHandleOp", devices=("cpu", "gpu")), Op("a", "MatMul", devices=("cpu",)))
    handle = Operator("VarHandleOp", (), (Tensor((), "resource"),), {}, 0.0)
    found = predicted_costs(net, {"w": handle, "a": NEW}, TOPOLOGY, dict.fromkeys(TOPOLOGY.names, times))
    assert found.graph.fingerprint == net.fingerprint
    assert found.graph.ops[0].cost_s == {"gpu:0": 0.0, "cpu:0": 0.0, "cpu:1": 0.0}
    assert set(found.graph.ops[1].cost_s) == {"cpu:0", "cpu:1"}
    assert [found.graph.ops[1].runs_on(device) for device in TOPOLOGY.devices] == [False, True, True]
    assert (found.guessed, found.guessed_share) == ({}, 0.0)


def test_what_no_model_times_is_counted_with_its_share(times: OperatorTimes) -> None:
    names = ("a", "odd", "odder", "loop")
    operators = dict(zip(names, (NEW, ODD, ODD, replace(LOOP, inputs=LOOP.inputs * 2)), strict=True))
    net = graph(*(Op(name, operators[name].type, devices=("cpu",)) for name in names))
    found = predicted_costs(net, operators, TOPOLOGY, dict.fromkeys(TOPOLOGY.names, times))
    seconds = [op.cost_s["cpu:0"] for op in found.graph.ops]
    assert found.guessed == {"Odd": 2, "While": 1}
    assert found.guessed_share == pytest.approx(sum(seconds[1:]) / sum(seconds))


def test_devices_of_one_kind_may_differ(times: OperatorTimes) -> None:
    slow = OperatorTimes.of([replace(r, median_s=10 * r.median_s) for r in ROWS], "cpu")
    net = graph(Op("a", "MatMul", devices=("cpu",)))
    by_name = {"gpu:0": times, "cpu:0": times, "cpu:1": slow}
    (op,) = predicted_costs(net, {"a": matmul(*SHAPES[0])}, TOPOLOGY, by_name).graph.ops
    assert op.cost_s["cpu:1"] == pytest.approx(10 * op.cost_s["cpu:0"])


def test_a_kind_without_rows_is_refused() -> None:
    with pytest.raises(BadInputError, match="placer profile"):
        OperatorTimes.of(ROWS, "gpu")
