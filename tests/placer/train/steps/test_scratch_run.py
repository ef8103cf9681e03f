"""Built steps are tried on variables of their own, and only those that do what the untouched step did may train."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from placer.errors import PlacerError
from placer.execute.agreement import LossDiffersError
from placer.execute.outputs import values
from placer.execute.rewrite import PlacedStep, Template
from placer.trace.capture import capture
from placer.train.steps.recorder import _values_of
from placer.train.steps.scratch_run import Recording, ScratchRun

BATCHES = [[tf.constant([1.0, 2.0])], [tf.constant([3.0, 1.0])]]


@pytest.fixture
def setting(two_cpus):
    """(the captured step, its variables, what two untouched steps recorded, devices)"""
    weight, count, rate = tf.Variable([1.0, -1.0]), tf.Variable(0.0), tf.Variable(0.01)

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(x * weight))
        weight.assign_sub(rate * tape.gradient(loss, weight))
        count.assign_add(1.0)
        return loss

    captured = capture(step, BATCHES[0])
    return captured, [weight, count, rate], recorded(captured), two_cpus


def recorded(captured):
    """What two untouched steps record."""
    start = {name: v.read_value() for name, v in captured.variables.items()}
    returned = [values(tf.nest.flatten(captured.call(batch))) for batch in BATCHES]
    end = {name: v.read_value() for name, v in captured.variables.items()}
    return Recording(start, BATCHES, returned, end)


def tried(captured, recording, devices, device):
    scratch_run = ScratchRun(captured, recording, exact=True)
    names = [devices.tf_name(device)] * len(captured.graph.ops)
    device_of = {op.name: name for op, name in zip(captured.graph.ops, names, strict=True)}
    step = PlacedStep(Template(captured), names, variables=scratch_run.variables(captured, device_of))
    scratch_run.run(step)
    return scratch_run, step


@pytest.mark.parametrize("device", [0, 1])
def test_a_scratch_run_touches_no_variable_of_the_training(setting, device):
    captured, variables, recording, devices = setting
    before = [v.numpy() for v in variables]
    scratch_run, step = tried(captured, recording, devices, device)
    scratch_run.run(step)  # from the same start again
    for variable, value in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    for name, variable in step.variables.items():
        np.testing.assert_array_equal(variable.numpy(), recording.end[name].numpy())


def test_another_loss_is_refused(setting):
    captured, _, recording, devices = setting
    wrong = replace(recording, returned=[[v + 1 for v in step] for step in recording.returned])
    with pytest.raises(LossDiffersError, match="untouched"):
        tried(captured, wrong, devices, 1)


def test_an_update_that_is_not_made_is_refused(setting):
    captured, variables, recording, devices = setting
    rate = next(name for name, v in captured.variables.items() if v is variables[2])
    end = {**recording.end, rate: tf.constant(0.02)}  # as if the untouched step had changed it
    with pytest.raises(LossDiffersError, match=r"changed by 0 in all, and by 0\.01 in all untouched"):
        tried(captured, replace(recording, end=end), devices, 1)


def test_a_variable_with_other_bits_than_under_the_first_mapping_is_refused(setting):
    captured, variables, recording, devices = setting
    scratch_run, step = tried(captured, recording, devices, 1)
    count = next(name for name, v in captured.variables.items() if v is variables[1])
    scratch_run.start[count].assign_add(1.0)  # no loss depends on it
    with pytest.raises(LossDiffersError, match="has other values than under another mapping"):
        scratch_run.run(step)


def test_it_keeps_one_copy_of_the_variables_once_a_mapping_agreed(setting):
    captured, _, recording, devices = setting
    scratch_run, step = tried(captured, recording, devices, 1)
    assert scratch_run._recording is None and not scratch_run._agreed(captured).references
    scratch_run.run(step)
    other = PlacedStep(Template(captured), [devices.tf_name(1)] * len(captured.graph.ops), variables=step.variables)
    scratch_run.run(other)
    scratch_run.close()
    with pytest.raises(PlacerError, match="closed"):
        scratch_run._agreed(captured)


def test_a_table_is_read_as_it_is_now(two_cpus):
    weight, ids = tf.Variable([1.0, -1.0]), tf.range(2, dtype=tf.int64)
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 1.0)

    def step(x):
        loss = tf.reduce_sum(tf.square(x * weight * table.lookup(ids)))
        weight.assign_sub(0.01 * x * table.lookup(ids))
        return loss

    captured = capture(step, BATCHES[0])
    recording = recorded(captured)
    table.insert(ids, [2.0, 3.0])
    scratch_run, placed = tried(captured, recording, two_cpus, 1)
    table.insert(ids, [4.0, 5.0])
    scratch_run.run(placed)
    untouched = scratch_run._reference
    scratch_run._reference = lambda start: replace(untouched(start), returned=recording.returned)
    table.insert(ids, [6.0, 7.0])
    with pytest.raises(LossDiffersError, match="untouched; it looks into a lookup table"):
        scratch_run.run(placed)


def test_what_is_kept_for_comparison_lies_in_the_memory_of_this_process(two_cpus):
    """Wherever the program's variables are: a GPU that holds these may have no room for four times as much."""
    with tf.device("CPU:1"):
        variables = {"w": tf.Variable(tf.ones([4]))}
    values = _values_of(variables.values())
    assert all(value.device.endswith("CPU:0") for value in values.values())
    start = {name: values[id(variable)] for name, variable in variables.items()}
    with tf.device("CPU:1"):
        scratch_run = ScratchRun(SimpleNamespace(), Recording(start, [], [], start), exact=True)
    assert all(variable.device.endswith("CPU:0") for variable in scratch_run.start.values())
    assert scratch_run._device.endswith("CPU:0")
