"""Only what may be repeated is tried: a step with another effect is left alone, and the reason is in plain words."""

from __future__ import annotations

import pytest
import tensorflow as tf

from placer.trace.effects import unrepeatable_effect

QUEUE = tf.queue.FIFOQueue(10, [tf.float32])


REFUSED = {
    "print": (lambda x: tf.print(x), "it prints"),
    "py_function": (lambda x: tf.py_function(lambda y: y, [x], tf.float32), "it calls a Python function"),
    "numpy_function": (lambda x: tf.numpy_function(lambda y: y, [x], tf.float32), "it calls a Python function"),
    "file": (lambda x: tf.io.write_file("f", tf.strings.as_string(x)), "it writes a file"),
    "queue": (lambda x: QUEUE.enqueue(x), "it uses a queue"),
    "dataset": (
        lambda x: tf.data.Dataset.range(3).reduce(x, lambda s, y: s + tf.cast(y, s.dtype)), "it goes through a dataset"
    ),
    "iterator of a dataset": (
        lambda x: [iter(tf.data.Dataset.from_tensors(x)).get_next()], "it goes through a dataset"
    ),
    "draw of a category": (lambda x: tf.random.categorical([[x]], 1), "it draws random numbers by an op whose stream"),
    "shuffle": (lambda x: tf.random.shuffle([x, x]), "it draws random numbers by an op whose stream"),
    "timestamp": (lambda x: tf.timestamp(), "it has an effect that is not on a variable"),
    "in a branch": (lambda x: tf.cond(x > 0, lambda: [tf.print(x), x][1], lambda: x), "it prints"),
    "in a loop": (lambda x: tf.while_loop(lambda i: i < 3.0, lambda i: [[tf.print(i), i + 1.0][1]], [x]), "it prints"),
    "in a function": (lambda x: tf.function(lambda y: [tf.print(y), y][1])(x), "it prints"),
}  # fmt: skip
ALLOWED = {
    "assert": lambda x: tf.debugging.assert_positive(x),
    "check": lambda x: tf.debugging.check_numerics(x, "no number"),
    "draw": lambda x: tf.random.normal([2]),
    "loop": lambda x: tf.while_loop(lambda i: i < 3.0, lambda i: [i + 1.0], [x]),
    "tensor array": lambda x: tf.TensorArray(tf.float32, 2).write(0, x).write(1, x).stack(),
    "generator": lambda x: GENERATOR.normal([2]),
    "assign": lambda x: VARIABLE.assign_add(x),
    "scatter": lambda x: ROWS.scatter_nd_update([[0]], [x]),
}
GENERATOR, VARIABLE, ROWS = tf.random.Generator.from_seed(1), tf.Variable(0.0), tf.Variable([0.0, 0.0])


def graph_of(body):
    @tf.function
    def step(x):
        body(x)
        return x

    return step.get_concrete_function(tf.constant(1.0)).graph.as_graph_def()


@pytest.mark.parametrize("what", REFUSED)
def test_an_effect_that_a_trial_would_repeat_is_named(what):
    body, reason = REFUSED[what]
    assert (unrepeatable_effect(graph_of(body)) or "").startswith(reason)


def test_a_summary_is_named(tmp_path):
    writer = tf.summary.create_file_writer(str(tmp_path))

    def body(x):
        with writer.as_default(step=0):
            tf.summary.write("x", x)

    assert (unrepeatable_effect(graph_of(body)) or "").startswith("it writes a summary")


@pytest.mark.parametrize("what", ALLOWED)
def test_what_may_be_repeated(what):
    assert unrepeatable_effect(graph_of(ALLOWED[what])) is None
