"""Threads that train beside the wrapped steps are seen, and workers are neither joined nor left meanwhile."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import tensorflow as tf

from placer.errors import BadInputError
from placer.train.connection import Connection
from placer.train.variables import other_threads
from placer.train.variables.hooks import trains_here
from placer.train.variables.replicas import Replicas


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Some variable is watched, as those of a wrapped step are; no thread was seen before."""
    monkeypatch.setattr(other_threads, "_latest_s", {})
    replicas = Replicas()
    replicas.adopt([tf.Variable(0.0)])
    yield
    replicas.close()


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """In the block, a thread lives that has done some work."""
    done, over = threading.Event(), threading.Event()

    def run() -> None:
        work()
        done.set()
        over.wait(60)

    thread = threading.Thread(target=run)
    thread.start()
    assert done.wait(60)
    yield
    over.set()
    thread.join(60)


def counting() -> Callable[[], tf.Tensor]:
    variable = tf.Variable(0.0)
    return tf.function(lambda: variable.assign_add(1.0).read_value())


def test_a_thread_that_trains_is_seen_until_it_ends() -> None:
    with beside(counting()):
        assert "another thread of this program trains" in (other_threads.why_not("joined") or "")
    assert other_threads.why_not("joined") is None


def test_a_thread_that_was_given_the_number_of_one_that_trained_is_not() -> None:
    with beside(counting()):
        pass
    (latest,) = other_threads._latest_s.values()
    over = threading.Event()
    thread = threading.Thread(target=over.wait, daemon=True)
    thread.start()
    other_threads._latest_s = {thread.ident or 0: latest}
    assert other_threads.why_not("joined") is None
    over.set()
    thread.join()


def test_a_thread_that_python_does_not_list_is_seen_too() -> None:
    count, done, over = counting(), threading.Event(), threading.Event()

    def run() -> None:
        count()
        done.set()
        over.wait(60)

    _thread.start_new_thread(run, ())
    assert done.wait(60)
    try:
        assert other_threads.why_not("left") is not None
    finally:
        over.set()


def test_one_that_only_reads_or_calls_wrapped_steps_is_not() -> None:
    variable = tf.Variable([1.0, 2.0])
    reading, training = tf.function(lambda: tf.reduce_sum(variable)), counting()

    def wrapped() -> None:
        trains_here()
        training()

    with beside(reading), beside(wrapped):
        training()  # in this thread, which asks
        assert other_threads.why_not("joined") is None


def test_one_that_has_not_trained_for_long_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_threads, "RECENT_S", -1.0)
    with beside(counting()):
        assert other_threads.why_not("joined") is None


def test_workers_are_neither_joined_nor_left_meanwhile() -> None:
    connection = Connection("workers:2", False)
    with beside(counting()):
        with pytest.raises(BadInputError, match="may lose a step when workers are joined"):
            connection.join()
        assert "may lose a step when workers are left" in (connection.why_stay() or "")
