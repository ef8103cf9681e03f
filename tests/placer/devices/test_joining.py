"""What joined workers are told about the memory that they free."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import tensorflow as tf

from placer import tf_internals
from placer.devices import joining
from placer.devices.workers import freed_memory

GONE = tf.errors.UnavailableError(None, None, "worker:0 is gone")
NO_PIPES = tf.errors.PermissionDeniedError(None, None, f"{freed_memory.WORDS_PATH}; Permission denied")


@pytest.fixture
def told(monkeypatch):
    """What is done: words that are written, clusters that are connected to. Joined are three workers; Placer started
    two of them, and another one before, which is not joined any more.
    """
    done = []

    def write_file(path, word):
        assert path == freed_memory.WORDS_PATH
        done.append(word)

    monkeypatch.setattr(tf.io, "write_file", write_file)
    monkeypatch.setattr(tf_internals.devices, "joined_tasks", lambda: {0: "host:1", 1: "host:2", 2: "host:3"})
    monkeypatch.setattr(joining, "connect", lambda cluster: done.append(cluster.as_dict()))
    monkeypatch.setattr(joining, "_heeding", {0, 2, 5})
    monkeypatch.setattr(tf, "device", lambda name: nullcontext())  # no worker is there
    return done


def test_workers_that_live_on_are_told_to_give_memory_back_before_they_are_left(told):
    joining.leave_living()
    assert told == ["g", "g", {}]


def test_workers_that_end_are_told_nothing(told):
    joining.disconnect()
    assert told == [{}]


@pytest.mark.parametrize("error", [GONE, NO_PIPES])
def test_a_worker_that_cannot_be_told_keeps_no_other_from_being_told_nor_any_from_being_left(told, monkeypatch, error):
    tell, asked = tf.io.write_file, []

    def write_file(path, word):
        asked.append(word)
        if len(asked) == 1:
            raise error
        tell(path, word)

    monkeypatch.setattr(tf.io, "write_file", write_file)
    joining.leave_living()
    assert told == ["g", {}]


def test_workers_that_reach_one_another_draw_nothing_from_the_programs_stream(two_cpus):
    tf.random.set_seed(3)
    try:
        expected = float(tf.random.uniform([]))
        tf.random.set_seed(3)
        joining.reach_one_another(list(two_cpus.tf_names.values()), [])
        assert float(tf.random.uniform([])) == expected
    finally:
        tf.random.set_seed(None)
