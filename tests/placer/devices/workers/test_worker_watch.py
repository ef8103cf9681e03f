"""Ending the frozen workers of a training, with real processes that freeze."""

from __future__ import annotations

import signal
import subprocess
import threading

import pytest

from placer.devices.workers import guard
from placer.devices.workers.deadline import FIRST_S, LEAST_S, TIMES
from placer.devices.workers.worker_watch import WorkerWatch
from placer.devices.workers.workers import Workers


@pytest.fixture
def sleepers():
    processes = [subprocess.Popen(["sleep", "600"], text=True) for _ in range(2)]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def watched(sleepers):
    kept = []

    def watch():
        kept.append(WorkerWatch(Workers((1, 2), ((0,), (1,)), sleepers)))
        return kept[-1]

    yield watch
    for one in kept:
        one.close()
        one.close()


def waits(watch):
    """Seconds that the calls may take which are waited for."""
    found = guard.WAIT.iter_unpack(watch._shared[guard.WAITS_AT :])
    return sorted(limit_s for begun, limit_s in found if begun)


def test_a_frozen_worker_is_ended_and_the_other_is_not(watched, sleepers, monkeypatch):
    monkeypatch.setenv("PLACER_DEADLINE_S", "1")
    watched()
    sleepers[0].send_signal(signal.SIGSTOP)
    assert sleepers[0].wait() == -signal.SIGKILL
    assert sleepers[1].poll() is None


def test_calls_of_several_threads_have_deadlines_and_of_nested_ones_the_inner_counts(watched):
    watch = watched()
    assert waits(watch) == []
    with watch.call("a step was taken", first=False):
        assert waits(watch) == [LEAST_S]
        thread = threading.Thread(target=in_thread, args=(watch, [LEAST_S, FIRST_S]))
        thread.start()
        thread.join()
        with watch.call("variables were moved", first=True):
            assert waits(watch) == [FIRST_S]
        assert waits(watch) == [LEAST_S]
    assert waits(watch) == []
    assert len(watch._free) == guard.MOST_WAITS


def in_thread(watch, expected):
    with watch.call("a mapping was built", first=True):
        watch.seen = waits(watch)
    assert watch.seen == expected


def test_a_call_may_take_longer_where_such_a_call_did_and_errors_stay_what_they_are(watched):
    watch = watched()
    for took_s in (1.0, 100.0, 2.0, 100.0):
        watch.took("a step was taken", took_s)
    with pytest.raises(KeyError), watch.call("a step was taken", first=False):
        assert waits(watch) == [TIMES * 100.0]
        raise KeyError
    assert waits(watch) == []


def test_one_call_that_was_held_up_gives_the_next_ones_no_longer(watched):
    watch = watched()
    for took_s in (1.0, 100.0, 2.0):
        watch.took("a step was taken", took_s)
    with watch.call("a step was taken", first=False):
        assert waits(watch) == [LEAST_S]
    watch.took("a step was taken", 5.0)
    with watch.call("a step was taken", first=False):
        assert waits(watch) == [TIMES * 5.0]


def test_more_threads_than_are_watched_only_lose_their_deadline(watched):
    watch = watched()
    watch._free.clear()
    with watch.call("a step was taken", first=False):
        assert waits(watch) == []
    assert watch._free == []
