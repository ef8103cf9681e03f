"""Every way to read a variable of the user sees the truth, and every way to write it is noticed."""

from __future__ import annotations

import copy
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from placer.errors import BadInputError, PlacerError
from placer.train import variable_hooks
from placer.train.replicas import Replicas

TRUTH = 7.0


@tf.function
def total(x):
    return tf.reduce_sum(x)


def in_a_thread(read):
    found = []
    thread = threading.Thread(target=lambda: found.append(read()))
    thread.start()
    thread.join()
    return found[0]


def from_checkpoint(variable, folder):
    path = tf.train.Checkpoint(v=variable).write(str(folder / "c"))
    return tf.train.load_checkpoint(path).get_tensor("v/.ATTRIBUTES/VARIABLE_VALUE")[0]


def taped(variable):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variable * variable)
    return tape.gradient(loss, variable)[0] / 2


READS = {
    "numpy": lambda v: v.numpy()[0],
    "asarray": lambda v: np.asarray(v)[0],
    "value": lambda v: v.value()[0],
    "read_value": lambda v: v.read_value()[0],
    "convert": lambda v: tf.convert_to_tensor(v)[0],
    "identity": lambda v: tf.identity(v)[0],
    "index": lambda v: v[0],
    "iterate": lambda v: next(iter(v)),
    "operator": lambda v: (v + 0.0)[0],
    "reflected": lambda v: (tf.zeros(2) + v)[0],
    "reduce_sum": lambda v: tf.reduce_sum(v) / 2,
    "square": lambda v: tf.sqrt(tf.square(v))[0],
    "l2_loss": lambda v: tf.sqrt(tf.nn.l2_loss(v)),
    "matvec": lambda v: tf.linalg.matvec(tf.eye(2), v)[0],
    "stack": lambda v: tf.stack([v, v])[1, 0],
    "concat": lambda v: tf.concat([v, v], 0)[2],
    "add_n": lambda v: tf.add_n([v, v])[0] / 2,
    "gather": lambda v: tf.gather(v, [0])[0],
    "gather_nd": lambda v: v.gather_nd([[0]])[0],
    "sparse_read": lambda v: v.sparse_read([0])[0],
    "cast": lambda v: tf.cast(v, tf.float64)[0],
    "where": lambda v: tf.where([True, True], v, 0.0)[0],
    "equal": lambda v: TRUTH if bool((v == tf.fill([2], TRUTH))[0]) else 0.0,
    "raw op": lambda v: tf.raw_ops.Square(x=v)[0] / TRUTH,
    "handle": lambda v: tf.raw_ops.ReadVariableOp(resource=v.handle, dtype=tf.float32)[0],
    "private handle": lambda v: tf.raw_ops.ReadVariableOp(resource=v._handle, dtype=tf.float32)[0],
    "deepcopy": lambda v: copy.deepcopy(v).numpy()[0],
    "map_structure": lambda v: tf.nest.map_structure(tf.identity, [v])[0][0],
    "keras.ops": lambda v: keras.ops.sum(v) / 2,
    "repr": lambda v: float(repr(v).split("array([")[1].split(",")[0]),
    "tape": taped,
    "function": lambda v: tf.function(lambda: tf.reduce_sum(v) / 2)(),
    "argument": lambda v: total(v) / 2,
    "compiled": lambda v: tf.function(lambda: v * 1.0, jit_compile=True)()[0],
    "cond": lambda v: tf.function(lambda c: tf.cond(c, lambda: v[0], lambda: 0.0))(tf.constant(True)),
    "thread": lambda v: in_a_thread(lambda: tf.reduce_sum(v) / 2),
    "dataset": lambda v: next(iter(tf.data.Dataset.range(1).map(lambda i: v[0]))),
    "generator": lambda v: next(iter(tf.data.Dataset.from_generator(lambda: iter([v[0]]), output_types=tf.float32))),
}  # fmt: skip


@pytest.fixture
def replicas():
    made = Replicas()
    yield made
    made.close()


def moved(replicas, device, variable=None):
    """A variable that a step has just set to TRUTH on another device, without an end: its step may run again."""
    variable = tf.Variable([1.0, 2.0]) if variable is None else variable
    replicas.adopt([variable])
    use = replicas.use([variable], [device], {0})
    train(replicas, use, TRUTH)
    return variable, use


def train(replicas, use, value):
    replicas.before(use)
    with variable_hooks.unwatched():
        use.replicas[0].assign([value, value])
    replicas.after(use)


@pytest.mark.parametrize("way", READS)
def test_every_way_of_reading_sees_the_truth(way, replicas, two_cpus):
    variable, use = moved(replicas, two_cpus.tf_name(1))
    assert float(READS[way](variable)) == TRUTH
    train(replicas, use, 2 * TRUTH)
    assert float(variable.numpy()[0]) == 2 * TRUTH


def test_a_checkpoint_sees_the_truth(replicas, two_cpus, tmp_path):
    variable, _ = moved(replicas, two_cpus.tf_name(1))
    assert from_checkpoint(variable, tmp_path) == TRUTH


def test_reading_by_an_op_leaves_the_step_its_replica(replicas, two_cpus):
    variable, use = moved(replicas, two_cpus.tf_name(1))
    before = replicas.changes
    tf.reduce_sum(variable)
    assert replicas.changes == before  # a write would make the next step fetch the variable
    replicas.before(use)
    assert (use.replicas[0].numpy() == TRUTH).all()


def test_what_is_written_by_a_private_handle_reaches_the_next_step(replicas, two_cpus):
    variable, use = moved(replicas, two_cpus.tf_name(1))
    tf.raw_ops.AssignVariableOp(resource=variable._handle, value=tf.constant([3.0, 4.0]))
    replicas.before(use)
    assert use.replicas[0].numpy().tolist() == [3.0, 4.0]


def test_an_error_while_the_truth_is_fetched_is_raised_where_an_op_reads(replicas, two_cpus, monkeypatch):
    variable, _ = moved(replicas, two_cpus.tf_name(1))

    def lost(*_):
        raise PlacerError("the device is gone")

    with monkeypatch.context() as patch:
        patch.setattr(replicas, "_fetch", lost)
        with pytest.raises(PlacerError, match="the device is gone"):
            tf.reduce_sum(variable)
    assert float(tf.reduce_sum(variable)) == 2 * TRUTH


def test_a_pipeline_made_before_is_noticed_when_the_variable_is_adopted(replicas):
    variable = tf.Variable([1.0, 2.0])
    pipeline = tf.data.Dataset.range(3).map(lambda i: variable[0])
    replicas.adopt([variable])
    assert pipeline is not None and replicas.aside == "a function of a tf.data pipeline"


def test_other_pipelines_are_not_minded(replicas):
    other = tf.Variable(1.0)
    pipeline = tf.data.Dataset.range(3).map(lambda i: other + tf.cast(i, tf.float32))
    replicas.adopt([tf.Variable([1.0, 2.0])])
    assert pipeline is not None and replicas.aside is None


def test_a_reader_of_tensorflows_thread_gives_up_waiting_aloud(replicas, two_cpus, monkeypatch):
    variable, _ = moved(replicas, two_cpus.tf_name(1))
    monkeypatch.setattr("placer.train.replicas.ASIDE_S", 0.01)
    with replicas._lock, pytest.warns(UserWarning, match="reads a variable as it was some steps ago"):
        assert float(READS["generator"](variable)) == 1.0
    assert replicas.aside == "a Python function in one of TensorFlow's threads"


def test_two_keepers_of_one_variable_are_refused(replicas):
    variable, other = tf.Variable([1.0, 2.0]), tf.Variable(1.0)
    replicas.adopt([variable])
    second = Replicas()
    with pytest.raises(BadInputError, match="other devices"):
        second.adopt([other, variable])
    assert variable_hooks.watched_by(variable) is replicas and variable_hooks.watched_by(other) is None
    replicas.close()
    assert second.adopt([variable])
    second.close()


def test_only_the_watcher_that_is_named_hears_nothing(replicas, two_cpus):
    variable, _ = moved(replicas, two_cpus.tf_name(1))
    other = Replicas()
    with variable_hooks.unwatched(other):
        assert float(variable.numpy()[0]) == TRUTH
    train(replicas, replicas.use([variable], [two_cpus.tf_name(1)], {0}), 2 * TRUTH)
    with variable_hooks.unwatched(replicas):
        assert float(variable.numpy()[0]) == TRUTH
