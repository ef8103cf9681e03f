"""Every way to read a variable of the user sees the truth, and every way to write it is noticed."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
import tensorflow as tf

from experiments.benches.trust.reads import READS
from placer.errors import BadInputError, PlacerError
from placer.train.variables import hooks
from placer.train.variables.replicas import Replicas

TRUTH = 7.0


def from_checkpoint(variable, folder):
    path = tf.train.Checkpoint(v=variable).write(str(folder / "c"))
    return tf.train.load_checkpoint(path).get_tensor("v/.ATTRIBUTES/VARIABLE_VALUE")[0]


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
    with hooks.unwatched():
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


class Between:
    """A number that another thread takes a step before it is known."""

    def __init__(self, replicas, use, number):
        self.replicas, self.use, self.number = replicas, use, number

    def __call__(self):
        step = threading.Thread(target=self.step)
        step.start()
        step.join()
        return np.full(2, self.number, np.float32)

    def step(self):
        self.replicas.before(self.use)
        self.replicas.after(self.use)

    def __array__(self, dtype=None, copy=None):
        return self()


WRITES = {
    "a function": lambda variable, value: tf.function(
        lambda: variable.assign(tf.ensure_shape(tf.numpy_function(value, [], tf.float32), [2]))
    )(),
    "assign": lambda variable, value: variable.assign(value),
    "assign_add": lambda variable, value: variable.assign_add(value),
}


@pytest.mark.parametrize("way", WRITES)
def test_a_write_that_ends_after_another_threads_step_copied_the_variable_reaches_the_next_one(way, replicas, two_cpus):
    variable = tf.Variable([0.0, 0.0])
    replicas.adopt([variable])
    use = replicas.use([variable], [two_cpus.tf_name(1)], set())  # reads it only, as a learning rate
    for number in (3.0, 4.0):
        before = variable.numpy()[0] if way == "assign_add" else 0.0
        WRITES[way](variable, Between(replicas, use, number))
        replicas.writes()
        replicas.before(use)
        replicas.after(use)
        assert use.replicas[0].numpy().tolist() == variable.numpy().tolist() == [before + number] * 2


def test_what_another_threads_step_wrote_while_a_function_read_is_not_taken_back(replicas, two_cpus):
    variable, use = moved(replicas, two_cpus.tf_name(1))

    def step():
        train(replicas, use, 2 * TRUTH)
        return np.float32(0.0)

    between = Between(replicas, use, 0.0)
    between.step = step
    inner = tf.function(lambda: variable + 0.0)
    look = tf.function(lambda: (tf.numpy_function(between, [], tf.float32), inner()))  # by a call: it might write
    look()
    assert float(variable.numpy()[0]) == 2 * TRUTH


def test_an_error_while_the_truth_is_fetched_is_raised_where_an_op_reads(replicas, two_cpus, monkeypatch):
    variable, _ = moved(replicas, two_cpus.tf_name(1))

    def lost(*_):
        raise PlacerError("the device is gone")

    with monkeypatch.context() as patch:
        patch.setattr(replicas, "_fetch", lost)
        with pytest.raises(PlacerError, match="the device is gone"):
            tf.reduce_sum(variable)
    assert float(tf.reduce_sum(variable)) == 2 * TRUTH


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, TimeoutError])
def test_what_a_signals_handler_raises_while_the_truth_is_fetched_is_raised_where_an_op_reads(
    replicas, two_cpus, monkeypatch, error
):
    variable, _ = moved(replicas, two_cpus.tf_name(1))
    fetch, pressed = replicas._fetch, []

    def interrupted(*arguments):
        if not pressed:
            pressed.append(True)
            raise error
        return fetch(*arguments)

    monkeypatch.setattr(replicas, "_fetch", interrupted)
    with pytest.raises(error):
        tf.reduce_sum(variable)
    assert float(tf.reduce_sum(variable)) == 2 * TRUTH


def test_what_a_signals_handler_raises_while_a_functions_argument_is_fetched_is_raised_there(
    replicas, two_cpus, monkeypatch
):
    variable, _ = moved(replicas, two_cpus.tf_name(1))
    total = tf.function(lambda x: tf.reduce_sum(x))

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(replicas, "_fetch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            total(variable)
    assert float(total(variable)) == float(variable.read_value()[0]) * 2 == 2 * TRUTH


def test_a_write_in_an_init_scope_while_a_function_is_traced_reaches_the_next_step(replicas, two_cpus):
    variable, use = moved(replicas, two_cpus.tf_name(1))

    @tf.function
    def traced():
        with tf.init_scope():
            variable.assign([3.0, 4.0])
        return 0

    traced()
    replicas.before(use)
    assert use.replicas[0].numpy().tolist() == [3.0, 4.0]


def test_functions_know_the_new_handles_where_ctrl_c_ends_the_giving_of_them(monkeypatch):
    variables = [tf.Variable(float(i)) for i in range(6)]
    functions = [tf.function(lambda v=v: v.assign_add(1.0)) for v in variables]
    for function in functions:
        function()
    give, given = hooks._give, []

    def interrupted(objects, handle):
        given.append(objects)
        if len(given) == 4:
            raise KeyboardInterrupt
        give(objects, handle)

    with monkeypatch.context() as patch:
        patch.setattr(hooks, "_give", interrupted)
        with pytest.raises(KeyboardInterrupt):
            hooks.renew_all()
    for function in functions:
        function()
    assert [v.numpy() for v in variables] == [i + 2.0 for i in range(6)]


def test_a_variable_whose_adoption_ctrl_c_cut_short_is_watched_from_the_next_one_on(replicas, two_cpus, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    variable = tf.Variable([1.0, 2.0])
    with monkeypatch.context() as patch:
        patch.setattr("placer.train.variables.replicas.watch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            replicas.adopt([variable])
    moved(replicas, two_cpus.tf_name(1), variable)
    assert float(variable.numpy()[0]) == TRUTH


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
    monkeypatch.setattr("placer.train.variables.replicas.ASIDE_S", 0.01)
    with replicas._lock, pytest.warns(UserWarning, match="reads a variable as it was some steps ago"):
        assert float(READS["generator"](variable)) == 1.0
    assert replicas.aside == "a Python function in one of TensorFlow's threads"


def test_two_keepers_of_one_variable_are_refused(replicas):
    variable, other = tf.Variable([1.0, 2.0]), tf.Variable(1.0)
    replicas.adopt([variable])
    second = Replicas()
    with pytest.raises(BadInputError, match="other devices"):
        second.adopt([other, variable])
    assert hooks.watched_by(variable) is replicas and hooks.watched_by(other) is None
    replicas.close()
    assert second.adopt([variable])
    second.close()


def test_only_the_watcher_that_is_named_hears_nothing(replicas, two_cpus):
    variable, _ = moved(replicas, two_cpus.tf_name(1))
    other = Replicas()
    with hooks.unwatched(other):
        assert float(variable.numpy()[0]) == TRUTH
    train(replicas, replicas.use([variable], [two_cpus.tf_name(1)], {0}), 2 * TRUTH)
    with hooks.unwatched(replicas):
        assert float(variable.numpy()[0]) == TRUTH


def test_a_reader_that_waits_while_all_is_closed_reads_on(two_cpus):
    class Lock:
        """Another thread has it first, and closes everything."""

        def __enter__(self):
            made.close()

        def __exit__(self, *_):
            pass

    made = Replicas(Lock())
    variable, _ = moved(made, two_cpus.tf_name(1))
    assert float(variable.numpy()[0]) == TRUTH
    assert hooks.watched_by(variable) is None


def test_a_variable_that_is_unwatched_while_it_is_read_is_read(two_cpus):
    class Closing:
        def will_read(self, variables):
            hooks.unwatch(variables[0])

    variable = tf.Variable([TRUTH, TRUTH])
    hooks.watch(variable, Closing())
    assert float(variable.read_value()[0]) == TRUTH


def test_all_objects_of_a_variable_get_the_same_new_handle():
    variable = tf.Variable(0.5)
    unread = variable.assign(0.25)
    function = tf.function(lambda: variable.assign_add(1.0))
    function()
    hooks.renew_all()
    assert unread.numpy() == 1.25
    unread.assign(3.0)
    function()
    assert variable.numpy() == unread.numpy() == 4.0


def test_a_concrete_function_that_was_made_before_is_exported_as_ever(tmp_path):
    """SavedModel finds its variables by the handles that it captured."""
    model = tf.Module()
    model.weight = tf.Variable([2.0, 3.0])
    summed = tf.function(lambda x: tf.reduce_sum(x * model.weight))
    model.summed = summed.get_concrete_function(tf.TensorSpec([2]))
    hooks.renew_all()
    model.weight.assign([4.0, 5.0])
    tf.saved_model.save(model, str(tmp_path / "model"))
    assert float(tf.saved_model.load(str(tmp_path / "model")).summed(tf.ones([2]))) == 9.0
    assert float(model.summed(tf.ones([2]))) == 9.0


def test_a_variable_that_is_watched_is_watched_by_its_new_handle(replicas, two_cpus):
    variable, use = moved(replicas, two_cpus.tf_name(1))
    unread = variable.assign([TRUTH, TRUTH])
    hooks.renew_all()
    train(replicas, use, 2 * TRUTH)
    assert float(unread.numpy()[0]) == 2 * TRUTH
    train(replicas, use, 3 * TRUTH)
    assert float(variable.numpy()[0]) == 3 * TRUTH


def test_a_function_whose_variable_is_only_kept_by_what_assign_returned_goes_on():
    def made():
        variable = tf.Variable(0.5)
        function = tf.function(lambda: variable.assign_add(1.0).read_value()).get_concrete_function()
        return function, variable.assign(1.0)

    function, unread = made()
    gc.collect()
    hooks.renew_all()
    function()
    assert unread.numpy() == 2.0
