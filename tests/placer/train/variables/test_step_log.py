"""A snapshot and the steps logged since lead back to where the training was, with the user's writes in their places."""

from __future__ import annotations

from functools import partial

import pytest
import tensorflow as tf

from placer.train.variables.replicas import Replicas
from placer.train.variables.step_log import LEAST_STEPS, StepLog


@pytest.fixture
def weight():
    return tf.Variable(1.0)


@pytest.fixture
def replicas(weight):
    found = Replicas()
    found.adopt([weight])
    yield found
    found.close()


def train(replicas, weight, given):
    """A step whose result depends on the order of steps and writes."""
    with_given = weight.read_value() * 2.0 + given
    replicas.overwrite({id(weight): with_given})


def run(log, replicas, weight, given):
    log.before_step()
    train(replicas, weight, given)
    log.add([given], partial(train, replicas, weight, given))


def test_replay_leads_from_the_snapshot_to_where_the_training_was(replicas, weight):
    log = StepLog(replicas)
    log.save()
    for i in range(6):
        if i in (2, 4):
            weight.assign(weight * 0.5 + i)
        run(log, replicas, weight, tf.constant(float(i)))
    weight.assign_add(7.0)
    log.keep_writes()
    here = weight.numpy()
    replicas.restore(log.snapshot)
    assert weight.numpy() == 1.0
    log.replay()
    assert weight.numpy() == here
    assert not log.steps and log.snapshot[id(weight)].numpy() == here


def test_a_snapshot_that_ctrl_c_cuts_short_changes_nothing(replicas, weight, monkeypatch):
    """With the new one and the steps before it, a loss would have these taken twice."""
    log = StepLog(replicas)
    log.save()
    for i in range(4):
        run(log, replicas, weight, tf.constant(float(i)))
    here = weight.numpy()

    def interrupted():
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(replicas, "writes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.save()
    replicas.restore(log.snapshot)
    log.replay()
    assert weight.numpy() == here


def test_a_stale_log_begins_anew_before_the_next_step(replicas, weight):
    log = StepLog(replicas)
    log.save()
    run(log, replicas, weight, tf.constant(1.0))
    log.is_stale = True
    log.before_step()
    assert not log.is_stale and not log.steps and log.snapshot[id(weight)].numpy() == 3.0


def test_a_step_that_took_an_iterator_counts_but_cannot_be_repeated(replicas):
    log = StepLog(replicas)
    log.save()
    log.add([tf.data.Dataset.range(3)._variant_tensor], lambda: None)
    assert (log.unrepeatable, log.steps) == (1, [])
    assert log.is_due(1.0, 1) and not log.is_due(1.0, 2)


def test_snapshots_are_as_far_apart_as_the_user_says_or_as_they_cost(replicas):
    now = [0.0]

    def clock():
        now[0] += 1.0  # so that a snapshot takes a second
        return now[0]

    log = StepLog(replicas, clock)
    log.save()
    for _ in range(LEAST_STEPS):
        assert not log.is_due(1e9, None)
        log.add([], lambda: None)
    assert log.is_due(1e9, None) and not log.is_due(1.0, None)
    assert log.is_due(1.0, LEAST_STEPS) and not log.is_due(1.0, LEAST_STEPS + 1)


def test_strings_count_by_their_length(replicas, monkeypatch):
    """Serialized examples, say, of whose size their type says nothing."""
    monkeypatch.setattr("placer.train.variables.step_log.MOST_LOG_BYTES", 10_000)
    log = StepLog(replicas)
    log.save()
    log.add([tf.constant([b"x" * 4_000, b"y"])], lambda: None)
    assert not log.is_due(1.0, 10**6)
    log.add([tf.constant([b"x" * 7_000])], lambda: None)
    assert log.is_due(1.0, 10**6)
