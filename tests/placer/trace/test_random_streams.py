"""Stateless random ops draw what stateful ones do, and a step built anew goes on where another stopped."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from placer.execute.agreement import LossDiffersError
from placer.execute.outputs import values
from placer.execute.rewrite import PlacedStep, Template
from placer.execute.untouched_outcome import untouched_outcome
from placer.trace.capture import capture
from placer.trace.random_streams import Draws, draws_within
from placer.train.steps.scratch_run import Recording, ScratchRun

KINDS = {
    "uniform": lambda seed: tf.random.uniform([3, 37], seed=seed),
    "normal": lambda seed: tf.random.normal([3, 37], seed=seed),
    "truncated": lambda seed: tf.random.truncated_normal([3, 37], seed=seed),
    "integers": lambda seed: tf.cast(tf.random.uniform([3, 37], -5, 90, tf.int32, seed=seed), tf.float32),
    "double": lambda seed: tf.cast(tf.random.normal([3, 37], dtype=tf.float64, seed=seed), tf.float32),
    "half": lambda seed: tf.cast(tf.random.normal([3, 37], dtype=tf.float16, seed=seed), tf.float32),
    "dropout": lambda seed: tf.nn.dropout(tf.ones([3, 37]), 0.3, seed=seed),
}


@pytest.fixture(autouse=True)
def no_global_seed(monkeypatch):
    """Another test may have set one, and TensorFlow has no way to take it back."""
    monkeypatch.setattr(context.context(), "_seed", None)


def drawing(weight, kind, seed=None):
    @tf.function
    def step(x):
        drawn = KINDS[kind](seed)
        weight.assign_add(tf.reduce_mean(drawn * x))
        return drawn, tf.reduce_sum(drawn)

    return step


def placed(captured, devices, device):
    return PlacedStep(Template(captured), [devices.tf_name(device)] * len(captured.graph))


@pytest.mark.parametrize("kind", KINDS)
def test_seeded_ops_draw_the_same_numbers_wherever_and_whenever_a_step_is_built(kind, two_cpus):
    x = tf.constant(1.0)
    step = drawing(tf.Variable(0.0), kind, seed=17)
    untouched = [step(x)[0].numpy() for _ in range(4)]
    captured = capture(step, (x,))
    assert captured.draws and captured.repeats is not None and not captured.is_random
    draws, found = Draws(), []
    for device in (0, 1, 1, 0):
        moved = placed(captured, two_cpus, device)  # built anew, as a move does
        moved.draws = draws
        found.append(values(moved.run_flat([x]))[0])
    np.testing.assert_array_equal(found, untouched)


def test_ops_without_seeds_never_repeat_themselves(two_cpus):
    x = tf.constant(1.0)
    captured = capture(drawing(tf.Variable(0.0), "normal"), (x,))
    assert captured.draws and captured.repeats is None
    draws, found = Draws(), []
    for device in (0, 1, 0):
        moved = placed(captured, two_cpus, device)
        moved.draws = draws
        found += [tuple(values(moved.run_flat([x]))[0].ravel()) for _ in range(3)]
    drawn = [number for step in found for number in step]
    assert len(set(drawn)) > 0.99 * len(drawn)
    again = capture(drawing(tf.Variable(0.0), "normal"), (x,))
    assert tuple(values(placed(again, two_cpus, 0).run_flat([x]))[0].ravel()) not in found


def test_the_untouched_step_is_repeated_with_the_same_numbers(two_cpus):
    """So a step that draws is compared like any other; its training goes on with numbers of its own."""
    weight, x = tf.Variable(0.5), tf.constant(2.0)
    captured = capture(drawing(weight, "normal"), (x,))
    (name,) = captured.variables
    runs = [untouched_outcome(captured, {name: weight.numpy()}, [[x]] * 3) for _ in range(2)]
    step = placed(captured, two_cpus, 1)
    mine = [values(step.run_flat([x])) for _ in range(3)]
    for outcome in runs:
        for one, other in zip(mine, outcome.returned, strict=True):
            np.testing.assert_allclose(one[0], other[0], rtol=1e-6)
        np.testing.assert_allclose(step.variables[name].numpy(), outcome.after[name], rtol=1e-5)
    assert weight.numpy() == 0.5


def test_a_wrong_update_of_a_step_that_draws_is_refused(two_cpus):
    weight, x = tf.Variable(0.5), tf.constant(2.0)
    captured, wrong = (capture(drawing(weight, "normal"), (tf.constant(factor),)) for factor in (2.0, 2.0))
    recording = Recording({n: v.read_value() for n, v in captured.variables.items()}, [[x]] * 2, [], {})
    trial = ScratchRun(captured, recording, exact=True)
    good = placed(captured, two_cpus, 1)
    trial.run(good)
    with pytest.raises(LossDiffersError):
        ScratchRun(captured, recording, exact=True).run(_renamed(placed(wrong, two_cpus, 1), captured))


def _renamed(step, captured):
    """A step of another capture, which draws other numbers, under this one's names of variables."""
    step.variables = dict(zip(captured.variables, step.variables.values(), strict=True))
    return step


def test_draws_in_a_branch_are_left_stateful_and_found():
    @tf.function
    def step(x):
        weight.assign_add(tf.cond(x > 0, lambda: tf.random.normal([]), lambda: 0.0))
        return weight.read_value()

    weight = tf.Variable(0.0)
    captured = capture(step, (tf.constant(1.0),))
    assert captured.is_random and not captured.draws
    assert [node.op for node in draws_within(captured.graph_def)] == ["RandomStandardNormal"]


def test_each_call_of_a_function_draws_numbers_of_its_own(two_cpus):
    weight, noise = tf.Variable(0.0), tf.function(lambda x: tf.random.normal([3, 37]) * x)
    pair = tf.function(lambda x: (noise(x), noise(x)))

    @tf.function
    def step(x):
        drawn = (*pair(x), *pair(x), noise(x))
        weight.assign_add(tf.reduce_mean(drawn[0] - drawn[1]))
        return (*drawn, tf.reduce_sum(drawn[0]))

    captured = capture(step, (tf.constant(1.0),))
    *drawn, _ = values(placed(captured, two_cpus, 0).run_flat([tf.constant(1.0)]))
    assert captured.draws and not captured.is_random
    assert len({tuple(numbers.ravel()) for numbers in drawn}) == 5
