"""Training outlives its devices: a worker killed or frozen at any time costs no step and no bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from placer.errors import BadInputError
from placer.train.background import AT_EXIT_S
from placer.train.device_session import DeviceSession


@pytest.mark.parametrize("joined", [None, "workers:2"])
def test_steps_on_workers_and_on_other_devices_are_not_placed_in_one_program(joined):
    """Joining gives all variables new storage, of which a step that is placed elsewhere knows nothing."""
    asked = "workers:2" if joined is None else None
    sessions = {spec: DeviceSession(spec, False) for spec in (joined, asked)}
    sessions[joined].connection._whole = object()
    DeviceSession._open.update({(spec, False): session for spec, session in sessions.items()})
    try:
        with pytest.raises(BadInputError, match="steps on workers need a program of their own"):
            sessions[asked].join()
        assert not sessions[asked].connection.is_joined
        closed = []
        sessions[joined]._close = lambda: closed.append(DeviceSession._open.pop((joined, False)))
        sessions[joined]._is_forsaken = True  # its steps are gone
        sessions[asked]._refuse_beside_workers()
        assert closed == [sessions[joined]]
    finally:
        for spec in sessions:
            DeviceSession._open.pop((spec, False), None)


@pytest.mark.parametrize(
    ("changed", "ends"), [({}, True), ({"lost": ("worker:0",)}, False), ({"refusal": "no"}, False)]
)
@pytest.mark.parametrize("is_child", [False, True])
def test_at_the_end_of_the_program_that_joined_them_workers_are_left(monkeypatch, changed, ends, is_child):
    """Not while one is lost or a thread needs them, and not by a forked child."""
    session, ended, pulled = DeviceSession("workers:2", False), [], []
    found = {"lost": (), "refusal": None} | changed
    session.connection._whole, session._joined_in = object(), os.getpid() + is_child
    for name, value in found.items():
        monkeypatch.setattr(session.connection, name, lambda *_, value=value: value)
    monkeypatch.setattr(type(session.connection), "fragile", True)
    monkeypatch.setattr(session.replicas, "pull", lambda: pulled.append(True))
    monkeypatch.setattr(DeviceSession, "members", [SimpleNamespace(end=ended.append)])
    session._end_with_program()
    assert ended == [AT_EXIT_S] * (ends and not is_child)
    assert pulled == [True] * (not found["lost"] and not is_child)


# One process, for workers can be joined only there, and starting them takes most of the time.
STORY = """
import faulthandler, os, signal, sys, time
faulthandler.dump_traceback_later(1100, exit=True)
sys.path.insert(0, sys.argv[1])
import keras, numpy as np, psutil
import tensorflow as tf
from conftest import Hand
from placer.devices import cluster
from placer.devices.workers import leftovers
from placer.train.device_session import DeviceSession

LASTS = "placer.devices.ports.listen_child"
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

def made():
    keras.utils.set_random_seed(3)
    inputs = keras.Input((6,))
    towers = [keras.layers.Dense(16, activation="relu")(inputs) for _ in range(2)]
    found = keras.layers.BatchNormalization()(keras.layers.Concatenate()(towers))
    model = keras.Model(inputs, keras.layers.Dense(3)(keras.layers.Dropout(0.2, seed=2)(found)))
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)
    mean = keras.metrics.Mean()
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = LOSS(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        mean.update_state(loss)
        return loss, mean.result()
    step = tf.function(step) if sys.argv[2] == "tf.function" else step
    return step, [*model.variables, *optimizer.variables, *mean.variables], optimizer, mean

def batch(i):
    rng = np.random.default_rng(i)
    return tf.constant(rng.normal(size=(8, 6)), tf.float32), tf.constant(rng.integers(0, 3, 8))

def taken(step, i):
    return [float(t) for t in step(*batch(i))]

session = DeviceSession("workers:2", False)
calm_step, calm_variables, calm_optimizer, calm_mean = made()
step, variables, optimizer, mean = made()
kinds = [type(v.value) for v in variables]
calm, hand = Hand(calm_step, session=session), Hand(step, session=session)
expected, got = [taken(calm, i) for i in range(4)], [taken(hand, i) for i in range(4)]
calm.place(), hand.place()
for i in range(4, 40):
    if i in (18, 30):
        calm_optimizer.learning_rate.assign(0.02), calm_mean.reset_state()
    expected.append(taken(calm, i))
wanted = [v.numpy() for v in calm_variables]
calm.close()

saved, save = [], session.log.save
session.log.save = lambda: (saved.append(len(got)), save())
session.sync_every = 5

def hit(*tasks):
    for task in tasks:
        os.kill(session.connection.workers.processes[task].pid, getattr(signal, sys.argv[3]))

def assignable():
    kept = optimizer.learning_rate.numpy()  # TensorFlow forgets variables at each joining, one in vain, too
    optimizer.learning_rate.assign(0.5)
    assert optimizer.learning_rate.numpy() == 0.5
    optimizer.learning_rate.assign(kept)

def back():
    deadline = time.monotonic() + 600
    while session.missing or session.devices is None:
        if session.back():
            session.rejoin()
            assignable()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    hand.placed.clear()
    hand.move()
    assert set(hand.live.mode.op_devices) == {0, 1}

def interrupted(i, part, name):
    # A step during which a worker is lost; while the training is recovered, Ctrl-C is pressed before part.name.
    whole = getattr(part, name)
    def pressed(*arguments):
        setattr(part, name, whole)
        raise KeyboardInterrupt
    setattr(part, name, pressed)
    hit(1)
    try:
        taken(hand, i)
    except KeyboardInterrupt:
        return
    raise AssertionError("nothing was lost")

def disturb(i):
    if i == 8:
        hand.move()
    if i == 10:  # all are there, and are joined anew, so that they free what they keep
        built, generation, leftovers.MOST_OPS = hand.live.mode, session.generation, -1
        assert session.keeps_much and session.join_anew() is None
        assert leftovers._ops == 0
        assert session.generation == generation + 1 and hand.live.mode is not built and not session.recovery.losses
        assert hand.live.mode.op_devices == built.op_devices
        assignable(), hand.placed.clear()
    if i == 11:  # one of them is not there any more
        hit(1), session.join_anew()
        assert session.missing == ("worker:1",) and set(hand.live.mode.op_devices) == {0}
        chance = hand.random.getstate()
        back()
        hand.random.setstate(chance)  # what happens below needs the mappings that it has
    if i == 12:
        hit(0)
    if i == 16:  # what is lost comes back, and is lost again while the caller looks at his variables
        back()
    if i == 17:
        before, lost = variables[0].numpy(), len(session.recovery.losses)
        taken(hand, 1000), hit(1)
        assert not np.array_equal(before, variables[0].numpy()) and len(session.recovery.losses) == lost + 1
        for v, value in zip(variables, kept, strict=True):
            v.assign(value)
    if i in (18, 30):
        optimizer.learning_rate.assign(0.02), mean.reset_state()
    if i == 20:  # a worker takes the step, and yet says that it could not read the call
        placed, run = hand.live.mode.step, hand.live.mode.step.run_flat
        def unread(tensors):
            placed.run_flat = run
            run(tensors)
            raise tf.errors.InternalError(None, None, "Unable to parse request Additional GRPC error information")
        placed.run_flat = unread
    if i == 22:  # and is lost once more while it is joined again
        reach = cluster.reach_one_another
        def lost_again(*asked):
            cluster.reach_one_another = reach
            hit(1)
            return reach(*asked)
        cluster.reach_one_another = lost_again
        back()
        assert cluster.reach_one_another is reach
    if i == 23:  # lost before the first step of a mapping, which shows where variables are kept to undo that step
        hand.placed.clear(), hand.move(), hit(1)
    if i == 24:  # lost under work in the background
        back()
        ops = len(hand.live.joined.captured.graph.ops)
        work = [hand.live.background(lambda k=k: hand.live.build([k % 2] * ops, (), "b")) for k in range(4)]
        hit(0)
    if i == 26:  # Ctrl-C while the training is recovered, after which the caller looks at his variables
        back()
        before = variables[0].numpy()
        interrupted(i, session.log, "replay")
        assert np.array_equal(before, variables[0].numpy())
    if i == 28:  # or goes on
        back(), interrupted(i, session.replicas, "restore")
    if i == 30:
        hit(1) if session.missing == ("worker:0",) else hit(0, 1)

for i in range(4, 30):
    kept = [v.numpy() for v in variables] if i == 17 else None
    disturb(i)
    got.append(taken(hand, i))
    assert hand.live.failed is None, (i, hand.live.failed[1])
assert got == expected[:30], [i for i in range(30) if got[i] != expected[i]]
assert len(session.recovery.losses) >= 3 and sum(loss.repeated for loss in session.recovery.losses) > 0
assert all(loss.repeated <= 5 and not loss.forgotten for loss in session.recovery.losses), session.recovery.losses
assert max(b - a for a, b in zip(saved, saved[1:])) <= 5, saved

for i in range(30, 40):  # with none left, in this process, whose arithmetic rounds otherwise
    disturb(i)
    got.append(taken(hand, i))
assert session.devices is None
np.testing.assert_allclose(got, expected, rtol=1e-3)
for v, value in zip(variables, wanted, strict=True):
    np.testing.assert_allclose(v.numpy(), value, rtol=1e-2, atol=1e-3)

last = variables[0].numpy()
hand.close()
left = [process for process in psutil.Process().children(recursive=True) if LASTS not in process.cmdline()]
assert not left and not DeviceSession._open
assert [type(v.value) for v in variables] == kinds and np.array_equal(variables[0].numpy(), last)
double = tf.function(lambda: variables[0].assign(2.0 * variables[0]))
double()
assert np.array_equal(variables[0].numpy(), 2.0 * last)
print("kept")
"""


@pytest.mark.slow
@pytest.mark.workers
@pytest.mark.parametrize(
    ("kind", "how"),
    [
        pytest.param("plain", "SIGKILL", marks=pytest.mark.nightly),
        pytest.param("tf.function", "SIGKILL", marks=pytest.mark.nightly),
        pytest.param("tf.function", "SIGSTOP", marks=pytest.mark.nightly),
    ],
)
def test_workers_killed_or_frozen_at_any_time_cost_no_step_and_no_bit(kind, how):
    command = [sys.executable, "-c", STORY, str(Path(__file__).parents[1]), kind, how]
    environment = {**os.environ, "PLACER_DEADLINE_S": "5"}  # after which a frozen one counts as lost
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200)
    assert ran.stdout.endswith("kept\n"), ran.stdout + ran.stderr[-5000:]
