"""Which whole variables are only used in parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from placer.splits.plan import Division, SplitPlan
from placer.splits.step_graph import StepGraph
from search.splits.variable_groups import is_used_in_parts, may_be_divided, tensors_like

N = 6


def _residual(x: Any) -> Any:
    """2^500 ways lead through it, and 1,000 ops follow one another."""
    for _ in range(500):
        x = x + tf.tanh(x)
    return x


def _turned(x: Any) -> Any:
    return tf.reshape(x, [1, N, 1])


def _grown(x: Any) -> Any:
    return tf.broadcast_to(x, [3, N])


def _reduced(x: Any) -> Any:
    return x + tf.reduce_sum(x)


def _graph(between: Callable[[Any], Any]) -> StepGraph:
    with tf.Graph().as_default() as graph:
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[N], shared_name="scale", name="scale")
        read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        x = between(read)
        tf.raw_ops.Exp(x=x, name="last")
        tf.raw_ops.AssignSubVariableOp(resource=handle, value=tf.raw_ops.Exp(x=read, name="update"))
    return StepGraph(graph.as_graph_def())


def _is_used_in_parts(graph: StepGraph, way: str) -> bool:
    return is_used_in_parts(graph, SplitPlan({"last": Division(way, 2)}), {"scale"}, {"update": "update"})


@pytest.mark.parametrize(("between", "way"), [(tf.identity, "axis0"), (_residual, "axis0"), (_turned, "axis1")])
def test_ops_that_keep_the_number_of_elements_are_looked_through(between: Callable[[Any], Any], way: str) -> None:
    assert _is_used_in_parts(_graph(between), way)


@pytest.mark.parametrize(("between", "way"), [(_grown, "axis1"), (_reduced, "axis0"), (_grown, "axis0")])
def test_others_need_the_whole(between: Callable[[Any], Any], way: str) -> None:
    assert not _is_used_in_parts(_graph(between), way)


def test_a_variable_that_no_divided_op_uses_is_not_used_in_parts() -> None:
    assert not is_used_in_parts(_graph(_residual), SplitPlan(), {"scale"}, {"update": "update"})


def _updated(update: Callable[[Any], Any]) -> StepGraph:
    with tf.Graph().as_default() as graph:
        update(tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[N], shared_name="scale", name="scale"))
    return StepGraph(graph.as_graph_def())


def _by_assignment(handle: Any) -> Any:
    return tf.raw_ops.AssignSubVariableOp(resource=handle, value=tf.ones([N]))


def _in_a_branch(handle: Any) -> Any:
    @tf.function(autograph=False)
    def kept(handle: Any) -> Any:
        return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)

    branch = kept.get_concrete_function(tf.TensorSpec([], tf.resource))
    return tf.raw_ops.If(cond=tf.constant(True), input=[handle], Tout=[tf.float32], then_branch=branch,
                         else_branch=branch)  # fmt: skip


@pytest.mark.parametrize(("update", "may"), [(_by_assignment, True), (_in_a_branch, False)])
def test_a_variable_that_a_branch_uses_is_not_divided(update: Callable[[Any], Any], may: bool) -> None:
    assert may_be_divided(_updated(update), ["scale"], 0) is may


def test_tensors_that_go_into_a_variable_element_by_element_are_wanted_as_it_is_cut() -> None:
    with tf.Graph().as_default() as graph:
        weight, slot = (
            tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[N, 4], shared_name=name, name=name)
            for name in ("weight", "slot")
        )
        x = tf.compat.v1.placeholder(tf.float32, [3, N], "x")
        gradient = tf.raw_ops.MatMul(a=x, b=tf.ones([3, 4]), transpose_a=True, name="gradient")
        old = tf.raw_ops.ReadVariableOp(resource=slot, dtype=tf.float32, name="old")
        new = tf.raw_ops.AddV2(x=tf.raw_ops.Mul(x=old, y=tf.constant(0.9), name="less"), y=gradient, name="new")
        tf.raw_ops.AssignVariableOp(resource=slot, value=new)
        tf.raw_ops.AssignSubVariableOp(resource=weight, value=new)
        tf.raw_ops.Exp(x=x, name="else")
    found = tensors_like(StepGraph(graph.as_graph_def()), {"weight": 1, "slot": 1})
    assert found == dict.fromkeys(("gradient", "old", "less", "new"), 1)
