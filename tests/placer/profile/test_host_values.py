"""Steps with host ops are profiled without them: what the others take from them is what they give here."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from placer.errors import PlacerError
from placer.profile import profiler
from placer.profile.host_values import without_host_ops
from placer.profile.profiler import profile
from placer.trace.capture import capture

ROWS = np.arange(8, dtype=np.float32).reshape(2, 4) / 10


def trained():
    weight = tf.Variable(tf.ones([4, 3]))

    def train(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(x @ weight - 1.0))
        weight.assign_sub(0.01 * tape.gradient(loss, weight))
        return loss

    return train, weight


def printing():
    train, weight = trained()

    def step(x):
        loss = train(x)
        tf.print("loss", loss, output_stream=tf.compat.v1.logging.info)
        return loss

    return step, weight


def calling():
    train, weight = trained()

    def step(x):
        half = tf.ensure_shape(tf.numpy_function(lambda a: a / 2, [x @ weight], tf.float32), (2, 3))
        return train(x) + tf.reduce_sum(half)

    return step, weight


def looking_up():
    train, weight = trained()
    keys, values = tf.constant([0, 1, 2], tf.int64), tf.constant([0.5, 1.5, 2.5])
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), 0.0)

    def step(x):
        return train(x * table.lookup(tf.cast(x[:, 0] * 10 / 4, tf.int64))[:, None])

    step.table = table
    return step, weight


@pytest.mark.parametrize("make", [printing, calling, looking_up])
def test_a_step_with_host_ops_gets_costs_on_every_device(two_cpus, make):
    step, weight = make()
    inputs = (tf.constant(ROWS),)
    captured = capture(step, inputs, "host")
    before = weight.numpy()
    alone = without_host_ops(captured, captured.flat_inputs(inputs))
    assert captured.host_ops and not alone.host_ops
    assert not captured.host_ops & alone.nodes.keys()
    assert alone.graph is captured.graph
    graph = profile(alone, two_cpus, captured.flat_inputs(inputs), runs=1, warm_up=1)
    assert all(set(op.cost_s) == {"cpu:0", "cpu:1"} for op in graph.ops)
    assert max(op.cost_s["cpu:0"] for op in graph.ops if op.type == "MatMul") > 0
    assert np.array_equal(weight.numpy(), before)


def test_what_host_ops_give_is_what_they_give_in_a_step(two_cpus):
    step, weight = calling()
    weight.assign(tf.random.stateless_normal([4, 3], [1, 2]))
    captured = capture(step, (tf.constant(ROWS),), "host")
    alone = without_host_ops(captured, [tf.constant(ROWS)])
    (value,) = [tf.make_ndarray(node.attr["value"].tensor) for node in alone.graph_def.node if "/value_" in node.name]
    assert np.allclose(value, ROWS @ weight.numpy() / 2)


def test_a_step_without_host_ops_stays_what_it_is(two_cpus, make_step):
    step, inputs = make_step()
    captured = capture(step, inputs, "small")
    assert without_host_ops(captured, captured.flat_inputs(inputs)) is captured


def test_where_no_device_can_time_a_step_the_line_says_why(two_cpus, make_step, monkeypatch):
    def fails(*_):
        raise tf.errors.InvalidArgumentError(None, None, "Cannot assign a device for operation x\nand more")

    monkeypatch.setattr(profiler, "trace_steps", fails)
    step, inputs = make_step()
    captured = capture(step, inputs, "small")
    with pytest.raises(PlacerError, match="cpu:0: Cannot assign a device for operation x; cpu:1: ") as refused:
        profile(captured, two_cpus, captured.flat_inputs(inputs))
    assert "\n" not in str(refused.value)
