"""A training that leaves its workers and joins them again computes what it would alone, with two steps, bit for bit."""

from __future__ import annotations

import subprocess
import sys

import pytest

# One process, for workers can be joined only there.
STORY = """
import faulthandler, functools, sys, time
faulthandler.dump_traceback_later(1500, exit=True)
import keras, numpy as np, psutil
import tensorflow as tf
import placer
from placer.train.device_session import DeviceSession
from placer.train.steps.placed_run import PlacedRun
from search.online.phases import rest

LASTS = "placer.devices.ports.listen_child"
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
rest.FAR = 0.0  # so that rest is due where the untouched step won, and no mapping is ever near
run = PlacedRun.run

def seeming_slow(self, mode, tensors):
    # So that the untouched step wins: on a busy machine its few steps may be the slower ones.
    outputs, step_s = run(self, mode, tensors)
    return outputs, step_s + 0.2

PlacedRun.run = seeming_slow

def made():
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((6,)), *(keras.layers.Dense(16) for _ in range(4))])
    model.add(keras.layers.Dropout(0.2))
    model.add(keras.layers.Dense(3))
    optimizers = [keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.01)]
    steps = []
    for optimizer in optimizers:
        optimizer.build(model.trainable_variables)
        def step(x, y, optimizer=optimizer):
            with tf.GradientTape() as tape:
                loss = LOSS(y, model(x, training=True))
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            return loss
        steps.append(tf.function(lambda x, y, step=step: step(x, y)))
    return steps, [*model.variables, *optimizers[0].variables, *optimizers[1].variables], optimizers[0]

@functools.cache
def drawn(i, size):
    rng = np.random.default_rng(i)
    return tf.constant(rng.normal(size=(size, 6)), tf.float32), tf.constant(rng.integers(0, 3, size))

def batch(i, size=8):
    return drawn(i % 16, size)

calm_steps, calm_variables, calm_optimizer = made()
steps, variables, optimizer = made()
options = {"devices": "workers:2", "budget": 2, "seed": 1}
placed = [placer.autoplace(step, **options) for step in steps]
session = DeviceSession._open["workers:2", False]
log = []  # what each call was given and returned, and what was written to the learning rate

def go(which, size=8):
    given = batch(len(log), size)
    log.append((which, given, float(placed[which](*given))))

def until(holds, steps=(0, 1)):
    begin = time.monotonic()
    while not holds():
        for which in steps:
            go(which)
        passed_s = time.monotonic() - begin
        assert passed_s < 600, [step.report() for step in placed]
        if passed_s > 40:  # on a busy machine, what it waits for hardly gets on beside steps without a pause
            time.sleep(0.005)

def said(kind, which=0):
    return [entry.sentence for entry in placed[which].journal.entries if entry.kind == kind]

def look(which=0):
    # Have one step look at mappings while both train on, and see it leave again.
    before = len(said("joined", which)), len(said("left", which))
    rest.SHARE = 1e9
    until(lambda: len(said("joined", which)) > before[0], [which])
    rest.SHARE = 0.03
    assert not session.is_away and not any(step.pass_over(1) for step in placed)
    until(lambda: session.is_away)
    assert len(said("left", which)) > before[1]

until(lambda: session.is_away and {step.phase for step in placed} == {"steady"})
assert any("another step" in line for line in said("left") + said("left", 1)), [step.report() for step in placed]
workers = [process.pid for process in session.connection.workers.processes]
assert all(psutil.pid_exists(pid) for pid in workers)
assert all(type(v.value).__name__ == type(c.value).__name__ for v, c in zip(variables, calm_variables))

for i in range(60):
    go(i % 2)
    go(0, size=5)  # another signature, first seen while workers are left
until(lambda: placed[0].pass_over(1), [0])  # one more is counted, and taken by the caller
count, given = placed[0].steps, batch(len(log))
log.append((0, given, float(steps[0](*given))))
assert count == sum(which == 0 for which, *_ in log)
log.append(("rate", 0.02, None))
optimizer.learning_rate.assign(0.02)
look(0)
look(1)
for i in range(30):
    go(0, size=5)

session.connection.workers.processes[0].kill()  # at rest, nobody notices
session.connection.workers.processes[0].wait()
for i in range(100):
    go(i % 2)
look(0)
assert not session.recovery.losses and len(said("measured")) > 1

table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1, 2], [3, 4]), 0)  # joining would drop it
rest.SHARE = 1e9
until(lambda: any("table" in line for line in said("error")), [0])
rest.SHARE = 0.03
assert session.is_away and int(table.lookup(tf.constant(2))) == 4

placed[0].close()
assert session.is_away
go(1)
placed[1].close()
go(0), go(1)
left = [process for process in psutil.Process().children(recursive=True) if LASTS not in process.cmdline()]
assert not left and not DeviceSession._open

for which, given, found in log:
    if which == "rate":
        calm_optimizer.learning_rate.assign(given)
    else:
        assert float(calm_steps[which](*given)) == found
assert all(np.array_equal(v.numpy(), c.numpy()) for v, c in zip(variables, calm_variables, strict=True))
print("kept")
"""


@pytest.mark.nightly
@pytest.mark.workers
def test_workers_that_are_left_and_joined_again_cost_no_step_and_no_bit():
    ran = subprocess.run([sys.executable, "-c", STORY], capture_output=True, text=True, timeout=1600)
    assert ran.stdout.endswith("kept\n"), ran.stdout + ran.stderr[-5000:]
