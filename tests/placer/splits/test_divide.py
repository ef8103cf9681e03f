"""Plans that cannot be carried out: one line names the op and the reason."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from placer.splits.divide import divide
from placer.splits.plan import Division, PlanError, SplitPlan
from placer.splits.rules.table import RULES
from placer.splits.step import split_step
from placer.splits.step_graph import StepGraph
from placer.trace.capture import capture
from placer.trace.graph_def.access_order import AccessOrder


def _graph(build: Callable[[], Any]) -> StepGraph:
    with tf.Graph().as_default() as graph:
        build()
    return StepGraph(graph.as_graph_def())


def _product() -> None:
    x = tf.compat.v1.placeholder(tf.float32, [6, 3], "x")
    tf.raw_ops.MatMul(a=x, b=tf.constant(np.ones([3, 4], np.float32)), name="product")


def _unknown() -> None:
    tf.raw_ops.Exp(x=tf.compat.v1.placeholder(tf.float32, [None, 3], "x"), name="exp")


def _packed() -> None:
    """As of what tf.io.parse_tensor gives."""
    unknown = tf.compat.v1.placeholder(tf.float32, None, "x")
    tf.raw_ops.Pack(values=[unknown, tf.constant(np.ones([4, 3], np.float32))], axis=0, name="packed")


def _pooled() -> None:
    x, unknown = (tf.compat.v1.placeholder(tf.float32, shape) for shape in ([4, 4, 4, 2], None))
    window = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
    tf.raw_ops.MaxPoolGrad(orig_input=x, orig_output=unknown, grad=unknown, **window, name="pooled")


def _random() -> None:
    tf.raw_ops.RandomUniform(shape=tf.constant([4, 3]), dtype=tf.float32, name="draw")


def _squeezed() -> None:
    tf.raw_ops.Squeeze(input=tf.compat.v1.placeholder(tf.float32, [5, 1], "x"), name="squeeze")


def _updated() -> None:
    handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[6, 3], shared_name="weight", name="weight")
    tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32, name="read")
    tf.raw_ops.AssignSubVariableOp(resource=handle, value=tf.ones([6, 3]), name="update")


NOT_ALIKE = "op '{}' ({}) is divided, but its variable 'weight' is not divided in the same way."


def _refused(build: Callable[[], Any], divisions: dict[str, Division], message: str) -> None:
    with pytest.raises(PlanError, match=f"^{re.escape(message)}$"):
        divide(_graph(build), SplitPlan(divisions), [], [])


@pytest.mark.parametrize(
    ("build", "name", "type", "way"),
    [
        (_product, "product", "MatMul", "height"),
        (_random, "draw", "RandomUniform", "axis0"),
        (_unknown, "exp", "Exp", "axis1"),
        (_packed, "packed", "Pack", "axis1"),
        (_pooled, "pooled", "MaxPoolGrad", "batch"),
    ],
)
def test_a_way_that_the_rule_does_not_have_is_refused(build: Callable[[], Any], name: str, type: str, way: str) -> None:
    why = "it can be divided along rows, columns, inner" if build is _product else "it has to stay whole"
    _refused(build, {name: Division(way, 2)}, f"op '{name}' ({type}) has no rule for '{way}'; {why}.")


@pytest.mark.parametrize(
    ("build", "name", "type", "way", "parts", "extent", "most"),
    [
        (_product, "product", "MatMul", "rows", 7, 6, 6),
        (_product, "product", "MatMul", "rows", 1, 6, 6),
        (_squeezed, "squeeze", "Squeeze", "axis0", 3, 5, 2),
    ],
)
def test_parts_without_enough_elements_are_refused(
    build: Callable[[], Any], name: str, type: str, way: str, parts: int, extent: int, most: int
) -> None:
    message = (
        f"op '{name}' ({type}) cannot be divided into {parts} parts along '{way}', which has {extent} elements; "
        f"ask for 2 to {most}."
    )
    _refused(build, {name: Division(way, parts)}, message)


def test_a_plan_for_another_graph_is_refused() -> None:
    message = "the plan divides 'produce', which the step does not have; it is for another graph."
    _refused(_product, {"produce": Division("rows", 2)}, message)


@pytest.mark.parametrize(
    ("divisions", "message"),
    [
        (
            {"weight": ("axis0", 2), "read": ("axis0", 2)},
            "op 'update' (AssignSubVariableOp) takes the divided variable 'weight' whole; "
            "divide it, too, or leave the variable whole.",
        ),
        ({"update": ("axis0", 2)}, NOT_ALIKE.format("update", "AssignSubVariableOp")),
        ({"weight": ("axis0", 2), "read": ("axis0", 3)}, NOT_ALIKE.format("read", "ReadVariableOp")),
        ({"weight": ("axis0", 2), "read": ("axis1", 2)}, NOT_ALIKE.format("read", "ReadVariableOp")),
    ],
)
def test_a_variable_is_divided_with_all_its_ops_or_not_at_all(
    divisions: dict[str, tuple[str, int]], message: str
) -> None:
    _refused(_updated, {name: Division(*division) for name, division in divisions.items()}, message)


def _named_like_parts() -> None:
    x = tf.compat.v1.placeholder(tf.float32, [6, 3], "x")
    y = tf.raw_ops.Exp(x=x, name="layer/part_1")
    tf.raw_ops.Neg(x=y, name="layer/part_1/part_0")
    tf.raw_ops.Mean(input=y, axis=tf.constant([0, 1]), name="layer/part_1/part_1")


def test_parts_are_known_whatever_ops_are_called() -> None:
    plan = SplitPlan({name: Division("axis0", 2) for name in ("layer/part_1", "layer/part_1/part_1")})
    made = divide(_graph(_named_like_parts), plan, ["layer/part_1/part_1", "layer/part_1/part_0"], [])
    assert Counter(made.part_of.values()) == dict.fromkeys(plan.divisions, 2)
    types = {node.name: node.op for node in made.graph_def.node}
    assert {types[name] for name in made.part_of} == {"Exp", "Mean"}
    weighted = [name for name in made.part if types[name] == "Mul"]
    assert len(weighted) == 2 and not made.part_of.keys() & weighted
    assert all(made.part[name] in (0, 1) for name in made.part_of)


def test_an_op_in_two_regions_is_refused() -> None:
    regions = iter([(Division("rows", 2), ["a", "b"]), (Division("rows", 3), ["b"])])
    with pytest.raises(PlanError, match=r"^op 'b' is divided in two ways; name it once\.$"):
        SplitPlan.of_regions(regions)


def _copied() -> None:
    x = tf.compat.v1.placeholder(tf.float32, [6, 3], "x")
    y = tf.raw_ops.Exp(x=x, name="exp")
    tf.raw_ops.Neg(x=y, name="rows")
    tf.raw_ops.Sum(input=y, axis=tf.constant([0, 1]), name="sum")
    tf.raw_ops.MatMul(a=y, b=y, transpose_a=True, name="inner")


def test_each_part_takes_the_copy_that_it_made_itself() -> None:
    ways = {"exp": "copies", "rows": "axis0", "sum": "copies", "inner": "inner"}
    made = divide(_graph(_copied), SplitPlan({name: Division(way, 2) for name, way in ways.items()}), ["sum"], [])
    nodes = {node.name: node for node in made.graph_def.node}
    assert list(nodes["exp/part_0"].input) == list(nodes["exp/part_1"].input) == ["x"]
    assert [nodes[f"sum/part_{i}"].input[0] for i in range(2)] == ["exp/part_0", "exp/part_1"]
    for i in range(2):
        (cut,) = nodes[f"rows/part_{i}"].input
        assert nodes[cut].input[0] == f"exp/part_{i}" and made.part[cut] == i
        assert set(nodes[f"inner/part_{i}"].input) == {cut}
    assert made.outputs == ("sum/part_0:0",)


@pytest.mark.parametrize(("build", "name", "type"), [(_random, "draw", "RandomUniform"), (_updated, "read", "Read")])
def test_what_has_state_is_not_copied(build: Callable[[], Any], name: str, type: str) -> None:
    with pytest.raises(PlanError, match=f"^op '{name}' .{type}.* has no rule for 'copies'"):
        divide(_graph(build), SplitPlan({name: Division("copies", 2)}), [], [])


def test_no_more_copies_are_made_than_a_graph_can_hold() -> None:
    def build() -> None:
        tf.raw_ops.Exp(x=tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2], name="x"), name="exp")

    with pytest.raises(PlanError, match=r"'exp' .Exp. is to be divided into 1000000000 parts; ask for 2 to 1024"):
        divide(_graph(build), SplitPlan({"exp": Division("copies", 10**9)}), [], [])


def _read_after() -> None:
    handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[6, 3], shared_name="weight", name="weight")
    update = tf.raw_ops.AssignSubVariableOp(resource=handle, value=tf.ones([6, 3]), name="update")
    indices = tf.constant([1, 2])
    with tf.control_dependencies([update]):
        tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32, name="read")
        tf.raw_ops.ResourceGather(resource=handle, indices=indices, dtype=tf.float32, name="gather")


@pytest.mark.parametrize("read", ["read", "gather"])
def test_a_part_of_a_variable_is_read_after_its_own_update_and_a_whole_one_after_all(read: str) -> None:
    whole = SplitPlan({"gather": Division("axis0", 2)})
    parts = SplitPlan({name: Division("axis1", 2) for name in ("weight", "update", "read", "gather")})
    for plan, waits in ((parts, ["update/part_0"]), (whole, ["update"])):
        made = divide(_graph(_read_after), plan, [], [])
        node = next(node for node in made.graph_def.node if node.name in (f"{read}/part_0", read))
        assert [text.removeprefix("^") for text in node.input if text.startswith("^")] == waits


def _linear() -> tuple[Any, list[tf.Variable]]:
    """Only shapes order the read of the weight and its update: the gradient of a mean needs none of its inputs."""
    weight = tf.Variable(tf.ones([8, 4]))

    def step(batches: Any) -> Any:
        x = next(batches)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(x @ weight)
        weight.assign_sub(0.01 * tape.gradient(loss, weight))
        return loss

    return tf.function(step), [weight]


def test_a_plan_that_loses_the_order_of_ops_on_a_variable_is_refused() -> None:
    step, _ = _linear()
    batches = iter(tf.data.Dataset.from_tensor_slices(tf.ones([12, 8])).repeat().batch(6))
    captured = capture(step, (batches,), elements={0: [tf.TensorShape([6, 8])]})
    graph = StepGraph(captured.graph_def)
    assert AccessOrder(captured.graph_def).first_open() is None
    product = next(op.name for op in graph.order if op.type == "MatMul")
    with pytest.raises(PlanError, match=r"^nothing would order .* and .*, which use one variable\.$"):
        split_step(captured, SplitPlan({product: Division("rows", 2)}), graph)


def test_a_plan_that_loses_the_order_of_a_check_and_a_write_is_refused() -> None:
    """Only the shape of the checked batch orders them, and that is a constant in a divided step."""
    weight, seen = tf.Variable(tf.ones([8, 4])), tf.Variable(0.0)

    def step(batches: Any) -> Any:
        x = next(batches)
        with tf.control_dependencies([tf.debugging.assert_less(tf.reduce_max(x), 1e3)]):
            rows = tf.shape(x)[0]
        seen.assign_add(tf.cast(rows, tf.float32))
        return tf.reduce_mean(x @ weight)

    batches = iter(tf.data.Dataset.from_tensor_slices(tf.ones([12, 8])).repeat().batch(6))
    captured = capture(tf.function(step), (batches,), elements={0: [tf.TensorShape([6, 8])]})
    assert not captured.has_loose_check
    product = next(node.name for node in captured.graph_def.node if node.op == "MatMul")
    with pytest.raises(PlanError, match=r"^nothing would order a check and a write that have an order"):
        split_step(captured, SplitPlan({product: Division("rows", 2)}))


def test_a_check_stays_whole() -> None:
    """Where one part raised, the parts of a variable that wait for others would be trained."""
    assert "CheckNumerics" not in RULES
