"""What ops compute tells steps apart whose ops are called the same; it is the same in every capture and process."""

from __future__ import annotations

import subprocess
import sys

import pytest
import tensorflow as tf

from placer.trace.capture import capture

IN_ANOTHER_PROCESS = """
import tensorflow as tf
from tests.placer.trace.graph_def.test_content import CHANGED, captured
tf.function(lambda x: tf.while_loop(lambda i: i < 9, lambda i: i + 1, [x]))(tf.constant(0))  # numbers functions anew
print(*(captured(**changed).content for changed in [{}, *CHANGED]))
"""
CHANGED = ({"loops": 300}, {"dilation": 2}, {"equation": "ab,ca->cb"}, {"axis": -1})


def captured(loops=3, dilation=1, equation="ab,bc->ac", axis=0, rate=0.1, closed=0.0):
    """A step with a loop whose function reads a variable, with an attribute, a constant, and draws without a seed."""
    kernel, weights = tf.Variable(tf.ones((3, 3, 4, 4)) * 0.01), tf.Variable(tf.ones((8, 8)) * 0.01)
    much = tf.constant([[closed] * 8] * 16).numpy()

    def step(x):
        with tf.GradientTape() as tape:
            y = tf.nn.conv2d(x, kernel, 1, "SAME", dilations=dilation)
            z = tf.reshape(y, (-1, 8))[:8] + tf.random.uniform((8, 8))
            z = tf.while_loop(lambda i, z: i < loops, lambda i, z: (i + 1, tf.tanh(z @ weights)), (0, z))[1]
            z = tf.reduce_sum(tf.concat([z, much[:8]], 1) * much[0, 0] + 1.0, axis)[:8]
            loss = tf.reduce_mean(tf.einsum(equation, weights, weights)) + tf.reduce_mean(z)
        for variable, gradient in zip((kernel, weights), tape.gradient(loss, (kernel, weights)), strict=True):
            variable.assign_sub(rate * gradient)
        return loss

    return capture(step, (tf.ones((2, 8, 8, 4)),), "step").graph


def test_the_same_step_has_the_same_content_in_every_capture(two_cpus):
    one, other = captured(), captured()
    assert one.content == other.content and len(one.content) == 16


@pytest.mark.parametrize("changed", [*CHANGED, {"rate": 0.2}])
def test_a_loop_an_attribute_an_equation_and_a_constant_tell_steps_apart(two_cpus, changed):
    assert captured().content != captured(**changed).content


@pytest.mark.parametrize("changed", CHANGED[:2])
def test_a_fingerprint_does_not_see_them(two_cpus, changed):
    """Mapping files name it: it stays what it was."""
    assert captured().fingerprint == captured(**changed).fingerprint


@pytest.mark.slow
def test_it_is_the_same_in_another_process(two_cpus):
    ran = subprocess.run([sys.executable, "-c", IN_ANOTHER_PROCESS], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [captured(**changed).content for changed in ({}, *CHANGED)]
