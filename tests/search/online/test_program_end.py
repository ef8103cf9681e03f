"""The end of a program whose step is placed on workers: what runs last reads what the last step wrote."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, sys, time
import keras, numpy as np, tensorflow as tf
import placer
from placer.train.steps.modes import Placed

def made():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - tf.reduce_sum(x, 1, keepdims=True)))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return step, [*model.variables, *optimizer.variables]

(step, variables), (calm, alone) = made(), made()

@tf.function
def total(values):
    return tf.add_n([tf.reduce_sum(tf.cast(value, tf.float64)) for value in values])

@atexit.register
def save():
    apart = max(float(np.max(np.abs(v.numpy() - other.numpy()))) for v, other in zip(variables, alone))
    print("apart", apart, float(total([v.value for v in variables]) - total([v.value for v in alone])))
    if sys.argv[1] == "goes on":
        print("trains", float(step(tf.ones([4, 8]))) == float(calm(tf.ones([4, 8]))))

step = placer.autoplace(step, devices="workers:2", budget=2, beat_untouched=False)
until, placed, i = time.monotonic() + 300.0, 0, 0
while placed < 5 and time.monotonic() < until:
    x = tf.constant(np.random.default_rng(i).normal(size=(4, 8)), tf.float32)
    step(x), calm(x)
    placed += isinstance(step._live.mode, Placed)
    i += 1
    time.sleep(0.01)
print("placed", placed)
if sys.argv[1] == "fails":
    raise SystemExit(3)
"""


@pytest.mark.some(1)
@pytest.mark.slow
@pytest.mark.parametrize(("how", "code"), [("ends", 0), ("fails", 3), ("goes on", 0)])
def test_a_handler_that_was_there_before_the_workers_reads_what_the_last_step_wrote(how, code):
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, timeout=900)
    said = ["placed 5", "apart 0.0 0.0", *(["trains True"] if how == "goes on" else [])]
    assert done.stdout.splitlines() == said, done.stderr[-2000:]
    assert done.returncode == code
    assert "remotely due to" not in done.stderr and "Traceback" not in done.stderr
