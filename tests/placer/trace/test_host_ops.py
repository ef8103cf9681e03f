"""Host ops: iterators, tables and Python functions stay where they are, whatever the mapping of the rest."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from placer.errors import BadInputError
from placer.execute.rewrite import PlacedStep, Template
from placer.trace.capture import capture

STEPS = 4
ROWS = np.arange(48, dtype=np.float32).reshape(12, 4) / 10


def rows():
    return iter(tf.data.Dataset.from_tensor_slices(ROWS).batch(2).repeat())


def trained():
    """(the loss of a batch after a step on it)"""
    weight = tf.Variable(tf.ones([4, 3]))

    def train(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(x @ weight - 1.0))
        weight.assign_sub(0.01 * tape.gradient(loss, weight))
        return loss

    return train


def on_argument():
    train = trained()
    return lambda iterator: train(next(iterator))


def on_closure():
    train, iterator = trained(), rows()
    return lambda: train(next(iterator))


def with_table():
    train = trained()
    keys, values = tf.constant([0, 1, 2], tf.int64), tf.constant([0.5, 1.5, 2.5])
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), 0.0)

    def step(x):
        factor = table.lookup(tf.cast(x[:, 0] * 10 / 16, tf.int64))
        return train(x * factor[:, None])

    step.table = table
    return step


def with_python():
    train, seen = trained(), []

    def step(x):
        half = tf.ensure_shape(
            tf.numpy_function(lambda a: (seen.append(a.shape), a / 2)[1], [x * 3.0], tf.float32), [2, 4]
        )
        loss = train(half)
        tf.print("loss", loss, output_stream=tf.compat.v1.logging.info)
        return loss

    return step


KINDS = {
    "argument": (on_argument, lambda: (rows(),)),
    "closure": (on_closure, lambda: ()),
    "table": (with_table, lambda: (tf.constant(ROWS[:2]),)),
    "python": (with_python, lambda: (tf.constant(ROWS[:2]),)),
}


@pytest.mark.some(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [0, 1])
def test_a_step_with_host_ops_trains_like_the_untouched_one(two_cpus, kind, first):
    make_step, make_args = KINDS[kind]
    reference, args = make_step(), make_args()
    untouched = tf.function(reference)
    expected = [untouched(*args).numpy() for _ in range(STEPS)]
    step, args = make_step(), make_args()
    captured = capture(step, args, kind)
    assert captured.host_ops
    names = [two_cpus.tf_name((i + first) % 2) for i in range(len(captured.graph))]
    side = {op.colocate or op.name: name for op, name in zip(captured.graph.ops, names, strict=True)}
    devices = [side[op.colocate or op.name] for op in captured.graph.ops]
    placed = PlacedStep(Template(captured, two_cpus.host), devices)
    assert [placed.run_flat(captured.flat_inputs(args))[0].numpy() for _ in range(STEPS)] == expected


@pytest.mark.parametrize("kind", KINDS)
def test_host_ops_are_no_ops_of_the_graph(two_cpus, kind):
    make_step, make_args = KINDS[kind]
    captured = capture(step := make_step(), make_args(), kind)
    assert step
    assert captured.host_ops <= set(captured.nodes)
    assert not captured.host_ops & {op.name for op in captured.graph.ops}
    assert captured.has_tables == (kind == "table")


def test_host_ops_are_put_on_the_host(two_cpus):
    step = with_python()
    captured = capture(step, (tf.constant(ROWS[:2]),), "python")
    devices = {op.name: two_cpus.tf_name(1) for op in captured.graph.ops}
    at = {node.name: node.device for node in Template(captured, two_cpus.host).placed("probe", devices).node_def}
    assert {at[name] for name in captured.host_ops} == {two_cpus.host}


def test_who_waits_for_a_host_op_waits_for_what_it_waits_for(two_cpus):
    """Or a run order that contradicts the way through the host op would be allowed, and never end."""
    step = with_python()
    captured = capture(step, (tf.constant(ROWS[:2]),), "python")
    graph = captured.graph
    (call,) = [name for name in captured.host_ops if captured.nodes[name].op.startswith("PyFunc")]
    before = set(captured.nodes[call].input)
    after = {op.name for op in graph.ops if call in captured.nodes[op.name].input}
    hidden = [e for e in graph.edges if graph.ops[e.src].name in before and graph.ops[e.dst].name in after]
    assert len(hidden) == len(after) > 0
    for edge in hidden:
        assert edge.edge_bytes == 0
        assert edge.output_index == len(graph.ops[edge.src].shapes)


def test_a_loop_over_an_iterator_that_trains_cannot_be_placed(two_cpus):
    train = trained()

    @tf.function
    def step(iterator):
        loss = 0.0
        for _ in tf.range(2):
            loss = train(next(iterator))
        return loss

    with pytest.raises(
        BadInputError, match=r"loop: op '.*' \(While\) takes the variable .* cannot be placed"
    ) as refused:
        capture(step, (rows(),), "loop")
    assert "\n" not in str(refused.value)
