"""Reconnection: what fails is told, what is not there yet is tried again, and no call waits."""

from __future__ import annotations

import threading
import time

import pytest

from placer.devices.workers.reconnect import MOST_FAILURES, POLL_S, Reconnection
from placer.devices.workers.workers import start_workers
from placer.errors import PlacerError

PATIENCE_S = 300.0


def settled(reconnection: Reconnection) -> bool:
    """Whether none is away once the attempts that run now have ended; those that begin now have ended afterwards, too,
    or they would take place at a later time of the test.
    """
    end(reconnection)
    away = reconnection.away()
    end(reconnection)
    return not away


def end(reconnection: Reconnection) -> None:
    for current in reconnection._waiting.values():
        current._thread.join(PATIENCE_S)


def test_a_call_does_not_wait_for_an_attempt():
    release = threading.Event()
    reconnection = Reconnection({"worker:0": lambda: release.wait(PATIENCE_S)})
    assert reconnection.away() == ("worker:0",)
    release.set()
    assert settled(reconnection)


def test_what_is_not_there_is_tried_again_but_not_more_often_than_every_two_seconds():
    now = [0.0]
    answers = iter([False, False, True])
    asked = []

    def attempt() -> bool:
        asked.append(now[0])
        return next(answers)

    reconnection = Reconnection({"worker:0": attempt, "worker:1": lambda: True}, clock=lambda: now[0])
    for now[0] in (0.0, POLL_S / 2, POLL_S, 1.5 * POLL_S, 2 * POLL_S):
        assert not settled(reconnection)
    assert settled(reconnection)
    assert asked == [0.0, POLL_S, 2 * POLL_S]


def test_a_device_that_cannot_come_back_is_given_up_and_others_are_not():
    now, asked = [0.0], []

    def attempt() -> bool:
        asked.append(now[0])
        raise PlacerError("worker:0 could not start")

    reconnection = Reconnection({"worker:0": attempt, "worker:1": lambda: True}, clock=lambda: now[0])
    for now[0] in range(100):
        assert not settled(reconnection) and reconnection.away() == ("worker:0",)
        assert (not reconnection.given_up) == (now[0] < sum(POLL_S * 2**k for k in range(MOST_FAILURES)))
    assert asked == [0, 2, 6, 14, 30]
    assert reconnection.given_up == {"worker:0": "worker:0 could not start"}


@pytest.mark.slow
@pytest.mark.workers
def test_a_worker_that_is_killed_while_it_starts_again_is_started_once_more():
    with start_workers(1) as workers:
        started = [workers.processes[0]]

        def changed() -> None:
            """As soon as it was started again for the first time, kill it, or it might be ready before."""
            started.append(workers.processes[0])
            if len(started) == 2:
                started[-1].kill()

        workers.changed = changed
        started[0].kill()
        reconnection = Reconnection({"worker:0": lambda: workers.restart(0) is None})
        deadline = time.monotonic() + PATIENCE_S
        while reconnection.away():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert workers.running(0) and len(started) == 3
