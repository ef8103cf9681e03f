"""Which whole ops are copied: those that cost less than sending what they make."""

from __future__ import annotations

import pytest
import tensorflow as tf

from placer.splits.plan import Division, SplitPlan
from placer.splits.step_graph import StepGraph
from search.splits.copying import with_copies
from search.splits.propagate import Rates

MESSAGE_S = 1e-3
PLAN = SplitPlan({"parts": Division("axis0", 2)})


def graph_of():
    """Two numbers -> decayed -> scaled -> a divided product of rows, beside what is whole and a random factor."""
    with tf.Graph().as_default() as graph:
        rate = tf.compat.v1.placeholder(tf.float32, [], "rate")
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="step", name="step")
        step = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32, name="read")
        decayed = tf.raw_ops.Pow(x=rate, y=step, name="decayed")
        scaled = tf.raw_ops.Mul(x=decayed, y=tf.raw_ops.Sqrt(x=step, name="root"), name="scaled")
        tf.raw_ops.Mul(x=tf.compat.v1.placeholder(tf.float32, [4, 3], "x"), y=scaled, name="parts")
        tf.raw_ops.Neg(x=scaled, name="whole")
        factor = tf.raw_ops.Mul(x=tf.raw_ops.RandomUniform(shape=[1], dtype=tf.float32), y=scaled, name="drawn")
        tf.raw_ops.Identity(input=factor, name="end")
    return StepGraph(graph.as_graph_def())


def copied(graph, seconds):
    names = ("decayed", "root", "scaled", "whole", "drawn")
    plan = with_copies(graph, PLAN, Rates(dict(zip(names, seconds, strict=True)), 0.0, MESSAGE_S), 2)
    assert plan.divisions["parts"] == PLAN.divisions["parts"]
    return {name for name, division in plan.divisions.items() if division == Division("copies", 2)}


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ((1e-6, 1e-6, 1e-6, 1e-6, 1e-6), set()),  # the step's number would have to be sent instead
        ((1e-6, 1e-6, 1.0, 1e-6, 1e-6), set()),
    ],
)
def test_one_message_for_another_is_no_gain(seconds, expected):
    assert copied(graph_of(), seconds) == expected


def test_a_chain_that_several_parts_need_is_copied_from_where_the_fewest_tensors_cross():
    graph = graph_of()
    with tf.Graph().as_default() as more:
        tf.graph_util.import_graph_def(graph.graph_def, name="")
        tensors = [more.get_tensor_by_name(f"{name}:0") for name in ("decayed", "root", "scaled")]
        x = tf.compat.v1.placeholder(tf.float32, [4, 3], "y")
        for i, tensor in enumerate(tensors):
            tf.raw_ops.Mul(x=x, y=tensor, name=f"more_{i}")
    graph = StepGraph(more.as_graph_def())
    plan = SplitPlan({**PLAN.divisions, **{f"more_{i}": Division("axis0", 2) for i in range(3)}})
    cheap = dict.fromkeys(("decayed", "root", "scaled"), 1e-06)

    def chosen(op_s):
        found = with_copies(graph, plan, Rates(op_s, 0.0, MESSAGE_S), 2).divisions
        return {name for name, division in found.items() if division.way == "copies"}

    assert chosen(cheap) == {"decayed", "root", "scaled"}  # one message, of the step's number, instead of three
    assert chosen(cheap | {"root": 1.0}) == {"scaled"}  # `decayed` is sent, or the number for it: the same
    assert chosen(cheap | {"scaled": 1.0, "root": 1.0, "decayed": 1.0}) == set()


@pytest.mark.parametrize("message_s", [MESSAGE_S, 2.0, 1e3])
def test_what_cannot_be_copied_stays_whole_however_slow_the_link(message_s):
    """On a link on which a message takes longer than the largest capacity says, too."""
    with tf.Graph().as_default() as graph:
        drawn = tf.raw_ops.RandomUniform(shape=[1], dtype=tf.float32, name="drawn")
        tf.raw_ops.Mul(x=tf.compat.v1.placeholder(tf.float32, [4, 3], "x"), y=drawn, name="parts")
    assert with_copies(StepGraph(graph.as_graph_def()), PLAN, Rates({}, 0.0, message_s), 2) == PLAN


def test_where_nothing_is_divided_nothing_is_copied():
    assert with_copies(graph_of(), SplitPlan(), Rates({}, 0.0, MESSAGE_S), 2) == SplitPlan()
