"""A tf.function is captured as its first call traced it: Python state, seeds and side effects stay what they were."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from placer.execute.outputs import values
from placer.execute.rewrite import PlacedStep, Template
from placer.trace.capture import capture


def test_it_is_not_traced_again():
    traces, rate = [], [2.0]
    weight = tf.Variable(1.0)

    @tf.function
    def step(x):
        traces.append(1)
        weight.assign_add(rate[0] * x)
        return weight.read_value()

    step(tf.constant(1.0))
    rate[0] = 100.0  # the function goes on with 2
    captured = capture(step, (tf.constant(1.0),))
    assert len(traces) == 1
    assert float(captured.call([tf.constant(1.0)])) == 5.0


def nested(a, b=3.0, *, c=None, d, scale=2):
    return a["u"] + 10 * a["t"] * b + 100 * d * scale + (0 if c is None else 1000 * tf.reduce_sum(c))


GIVEN = {"u": tf.constant(1.0), "t": tf.constant(2.0)}
RAGGED = tf.ragged.constant([[1.0, 2.0], [3.0]])
CALLS = {
    "keywords in another order": ((), {"d": tf.constant(4.0), "a": {"t": tf.constant(2.0), "u": tf.constant(1.0)}}),
    "defaults": ((GIVEN,), {"d": tf.constant(4.0)}),
    "a constant": ((GIVEN, tf.constant(5.0)), {"d": np.float32(3), "scale": 7}),
    "ragged": ((GIVEN,), {"d": tf.constant(4.0), "c": RAGGED}),
}  # fmt: skip


@pytest.mark.parametrize("how", CALLS)
def test_a_call_reaches_its_arguments(how, two_cpus):
    args, kwargs = CALLS[how]
    weight = tf.Variable(0.0)

    @tf.function
    def step(*args, **kwargs):
        weight.assign_add(1.0)
        return nested(*args, **kwargs)

    plain = tf.function(lambda *a, **k: (weight.assign_add(1.0), nested(*a, **k))[1])
    for function in (step, plain):
        expected = function(*args, **kwargs)
        captured = capture(function, args, kwargs=kwargs)
        flat = captured.flat_inputs(args, kwargs)
        assert float(captured.call(flat)) == float(expected)
        placed = PlacedStep(Template(captured), [two_cpus.tf_name(1)] * len(captured.graph))
        assert float(values(placed.run_flat(flat))[0]) == float(expected)


def test_a_bound_methods_own_trace_is_taken_for_arguments_given_by_name(two_cpus):
    class Trainer:
        def __init__(self):
            self.weight, self.traces = tf.Variable(1.0), 0

        @tf.function
        def step(self, x, y):
            self.traces += 1
            self.weight.assign_add(x - y)
            return self.weight.read_value()

    trainer = Trainer()
    x, y = tf.constant(3.0), tf.constant(1.0)
    trainer.step(y=y, x=x)
    captured = capture(trainer.step, (), kwargs={"y": y, "x": x})
    assert trainer.traces == 1
    assert float(captured.call(captured.flat_inputs((), {"y": y, "x": x}))) == 5.0


def test_an_iterator_is_taken_by_the_functions_own_trace():
    weight = tf.Variable(0.0)

    @tf.function
    def step(iterator):
        weight.assign_add(next(iterator))
        return weight.read_value()

    numbers = iter(tf.data.Dataset.from_tensors(2.0).repeat())
    step(numbers)
    captured = capture(step, (numbers,), elements={0: [tf.TensorShape([])]})
    assert captured.input_names == (captured.input_names[0],) and len(captured.graph) > 0
    assert float(captured.traced.call(tf.nest.flatten(numbers, expand_composites=True))) == 4.0


def test_a_function_that_widens_its_argument_is_traced_around():
    weight = tf.Variable(0.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def step(x):
        weight.assign_add(tf.reduce_sum(x))
        return weight.read_value()

    x = tf.constant([1.0, 2.0])
    step(x)
    captured = capture(step, (x,))
    assert float(captured.call([x])) == 6.0
